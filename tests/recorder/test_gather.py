"""The facts that are collected beside training: a git that hangs delays nobody, no fork meets half an import."""

import os
import shutil
import subprocess
import sys
import threading
import time

import pytest

import watcherml
from watcherml.recorder import gather
from watcherml.recorder.git import STOPPED

GIT = shutil.which("git")
# What the end of a run may take at most with everything around it on a busy machine; git alone would have 15 s.
BOUND_SECONDS = 9.0

HANGING = """#!/bin/sh
case "$*" in
{pattern}) echo $$ >> {folder}/pids; sleep 600 & echo $! >> {folder}/pids; wait;;
*) exec {git} "$@";;
esac
"""


@pytest.fixture
def repository(storage, tmp_path):
    def git(*arguments):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments], cwd=tmp_path, check=True)

    git("init", "-q", "-b", "main")
    (tmp_path / ".gitignore").write_text("bin\npids\n.watcherml\n")
    (tmp_path / "a.txt").write_text("one\n")
    git("add", ".")
    git("commit", "-qm", "one")
    (tmp_path / "a.txt").write_text("two\n")
    return tmp_path


def hang(folder, monkeypatch, pattern):
    (folder / "bin").mkdir()
    script = folder / "bin" / "git"
    script.write_text(HANGING.format(pattern=pattern, folder=folder, git=GIT))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")


def record(storage, error=None):
    run = watcherml.Run("p", {}, storage, quiet=True).start()
    run.log_metric("x", 1.0)
    began = time.monotonic()
    if error is None:
        run.finish()
    else:
        run.fail(error)
    return run, storage.get_run(run.run_id)["facts"], time.monotonic() - began


def all_gone(folder):
    pids = [int(line) for line in (folder / "pids").read_text().split()]
    deadline = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        assert time.monotonic() < deadline, pids
        time.sleep(0.02)
    return len(pids)


@pytest.mark.parametrize("error", [None, ValueError("boom")], ids=["success", "failure"])
def test_a_git_that_hangs_is_ended_with_the_run(storage, repository, monkeypatch, error):
    hang(repository, monkeypatch, "*")
    run, facts, seconds = record(storage, error)
    assert seconds < BOUND_SECONDS and all_gone(repository) == 2
    assert facts["git"] == {"status": "unavailable", "reason": STOPPED}
    assert facts["environment"]["packages"] and facts["machine"]["cpu_count"] and facts["working_directory"]
    assert "facts_cut_short" not in facts and not run.problems
    if error is not None:
        assert storage.get_capsule(run.run_id)["failure"]["message"] == "boom"


def test_what_git_has_said_before_it_hangs_is_kept(storage, repository, monkeypatch):
    hang(repository, monkeypatch, "*' diff '*|*' diff-index '*|*' add '*|*' ls-files '*|*' status '*")
    _, facts, seconds = record(storage)
    assert seconds < BOUND_SECONDS and all_gone(repository)
    git = facts["git"]
    assert git["status"] == "available" and len(git["commit"]) == 40 and git["branch"] == "main"
    assert git["patch_omitted"] == STOPPED and git["dirty"] is None


def test_a_run_without_any_time_has_all_its_facts(storage, repository):
    for _ in range(3):
        _, facts, _ = record(storage)
        assert facts["git"]["dirty"] is True and facts["git"]["patch_is"] == "exact"
        assert set(facts) >= {"git", "environment", "machine", "argv", "working_directory"}


def test_facts_that_cannot_be_stopped_are_named_and_do_not_come_later(storage, monkeypatch):
    stuck = threading.Event()
    real = gather.machine.collect
    monkeypatch.setattr(gather, "END_WAITS_SECONDS", 0.2)
    monkeypatch.setattr(gather.machine, "collect", lambda: stuck.wait(60) and real())
    run, facts, seconds = record(storage)
    assert seconds < BOUND_SECONDS and not run.problems
    assert facts["facts_cut_short"] == ["machine"] and facts["git"]["reason"] == STOPPED
    assert facts["environment"]["packages"]
    stuck.set()
    run._recording._gathering._thread.join(30)
    assert storage.get_run(run.run_id)["facts"] == facts


def test_waiting_twice_takes_no_longer_than_waiting_once(storage, monkeypatch):
    stuck = threading.Event()
    monkeypatch.setattr(gather, "END_WAITS_SECONDS", 0.5)
    monkeypatch.setattr(gather.machine, "collect", lambda: stuck.wait(60))
    began = time.monotonic()
    with watcherml.Run("p", {}, storage, quiet=True) as run:
        for _ in range(20):
            run.join_facts()
    stuck.set()
    assert time.monotonic() - began < BOUND_SECONDS


def test_one_kind_of_facts_that_fails_costs_no_other(storage, monkeypatch):
    def broken():
        raise OSError("broken")

    monkeypatch.setattr(gather.environment, "collect", broken)
    with pytest.warns(RuntimeWarning, match="broken"):
        _, facts, _ = record(storage)
    assert set(facts) >= {"git", "machine", "argv", "recording_problems"} and "environment" not in facts


IMPORTS = """
import sys, threading, watcherml
from watcherml.store import gate

class Look:
    def find_spec(self, name, path=None, target=None):
        thread = threading.current_thread()
        if thread.name.startswith('watcherml-'):
            seen.append(name)
            if thread.ident not in gate._gate.inside: outside.append((thread.name, name))

seen, outside = [], []
sys.meta_path.insert(0, Look())
run = watcherml.init('p', {}, sys.argv[1])
run.join_facts()
run.finish()
print(len(seen) > 3, outside)
"""


def test_the_facts_are_collected_without_an_import_that_a_fork_could_meet(storage, repository):
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, str(storage.path)], cwd=repository, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "True []"


FORKS = """
import os, sys, threading, time, watcherml
for _ in range(20):
    run = watcherml.Run('p', {}, sys.argv[1], quiet=True).start()
    pid = os.fork()
    if pid == 0:
        from importlib import metadata
        import tempfile, difflib
        os._exit(0)
    deadline = time.monotonic() + 20
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(pid, 9)
            sys.exit('a child hangs')
        time.sleep(0.005)
    run.finish()
    for name in ('importlib.metadata', 'tempfile', 'difflib'): sys.modules.pop(name, None)
"""


def test_a_child_forked_as_a_run_starts_can_import_what_the_facts_need(storage, repository):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS, str(storage.path)], cwd=repository, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
