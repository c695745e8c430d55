"""What somebody meets who comes with a script of their own: where files go, what is missing, what comes next."""

import json
import os
import subprocess
import sys

import pytest

import watcherml
from tests.builders import OOM_TEXT
from watcherml import Storage
from watcherml.cli.main import main

CODE = "def train(config, max_steps=None):\n    return {'steps_completed': config['train']['steps']}\n"
NESTED = {"train": {"batch_size": 8, "accumulate": 1, "steps": 40}}


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a project ü")
    (folder / "newcomer_entry.py").write_text(CODE)
    run = watcherml.Run("demo", NESTED, folder / ".watcherml", quiet=True)
    with pytest.raises(RuntimeError), run:
        raise RuntimeError(OOM_TEXT)
    return folder, run.run_id


@pytest.fixture
def watcher(failed, monkeypatch, capsys):
    monkeypatch.chdir(failed[0])
    monkeypatch.delenv("WATCHERML_DIR", raising=False)
    monkeypatch.setattr("sys.argv", ["watcher"])

    def call(*words):
        code = main(list(words))
        out = capsys.readouterr()
        return code, out.out, out.err

    return call


def prepare(run_id, *words):
    steps = ["--minimum-progress-steps", "40", "--no-predict"]
    return ["prepare-recovery", run_id, "--entrypoint", "newcomer_entry:train", *steps, *words]


@pytest.mark.parametrize("command", ["prepare-recovery", "recover"])
def test_a_plan_never_takes_the_place_of_a_file_that_is_no_plan(failed, watcher, command):
    folder, run_id = failed
    flag = "--out" if command == "prepare-recovery" else "--save-plan"
    for name, text in (("mine.py", "print(1)\n"), ("mine.json", '{"kind": "mine"}'), ("list.json", "[1]")):
        (folder / name).write_text(text)
        words = [command, run_id, "--entrypoint", "newcomer_entry:train", "--minimum-progress-steps", "40", flag, name]
        code, out, err = watcher(*words)
        assert code == 1 and out == "", (name, out)
        assert flag in err and f"{name}, which exists and is no plan" in err and "Choose another name" in err
        assert (folder / name).read_text() == text


def test_an_earlier_plan_and_an_empty_file_are_replaced(failed, watcher):
    folder, run_id = failed
    plan = folder / "plan.json"
    plan.touch()
    for steps in ("40", "39"):
        assert watcher(*prepare(run_id, "--minimum-progress-steps", steps, "--out", str(plan)))[0] == 0
        assert json.loads(plan.read_text())["value"]["contract"]["verification"]["minimum_progress_steps"] == int(steps)


def test_a_plan_that_changes_the_effective_batch_says_so_and_how_to_name_what_accumulates(failed, watcher):
    folder, run_id = failed
    said = " ".join(watcher(*prepare(run_id))[1].split())
    assert "batch-4 and 2 more change the effective batch." in said
    told = '{"gradient_accumulation_steps": {"path": ["train", "accumulate"]}}'
    told = f"train.accumulate could be it. If so, declare {told}, in a file (--capabilities FILE)."
    assert f"What accumulates: {told}" in said
    assert "it overwrites a checkpoint of yours" in said
    (folder / "told.json").write_text('{"gradient_accumulation_steps": {"path": ["train", "accumulate"]}}')
    said = watcher(*prepare(run_id, "--capabilities", "told.json"))[1]
    assert "change the effective batch" not in said and "train.accumulate: 1 → 2" in said
    short = " ".join(watcher(*["recover", *prepare(run_id)[1:], "--no-approval-prompts"])[1].split())
    assert "batch-4 and 2 more change the effective batch." in short and "checkpoint of yours" in short


def test_steps_in_a_section_of_the_configuration_are_offered_and_not_taken(failed, watcher):
    code, out, err = watcher("prepare-recovery", failed[1], "--entrypoint", "newcomer_entry:train")
    assert (code, out) == (2, "") and "If train.steps = 40 counts them, give that number." in err


def test_a_project_named_instead_of_its_store_is_told_where_the_store_is(failed, watcher):
    said = " ".join(watcher("runs", "--data-dir", str(failed[0]))[1].split())
    assert f"There is one in {failed[0] / '.watcherml'}: name that folder." in said


def test_the_list_of_runs_shows_the_peak_of_the_receipt(failed, watcher):
    storage = Storage(failed[0] / ".watcherml")
    run = watcherml.Run("demo", {}, storage, quiet=True).start()
    run.finish()
    storage.runs.add_receipt(run.run_id, {"peak_device_bytes": 97 * 2**20})
    line = next(line for line in watcher("runs")[1].splitlines() if run.run_id in line)
    assert "97.0 MiB" in line
    from watcherml.store import pages

    with storage.database.reading() as connection:
        rows = pages.runs(connection, pages.Cut(10, 0)).rows
    assert {row["run_id"]: row["peak_device_bytes"] for row in rows} == {run.run_id: 97 * 2**20, failed[1]: None}


def fails(folder, options, stderr):
    code = f"import watcherml\nwith watcherml.init('p', {{}}, **{options!r}) as run:\n    raise ValueError('mine')\n"
    environment = {key: value for key, value in os.environ.items() if key != "WATCHERML_DIR"}
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=stderr
    )


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no pseudo-terminals here")
def test_a_script_that_fails_on_a_terminal_is_told_the_command_that_shows_why(tmp_path):
    shown = {}
    for name in ("", "my store"):
        ours, theirs = os.openpty()
        child = fails(tmp_path, {"storage": name} if name else {}, theirs)
        os.close(theirs)
        told = b""
        try:
            while piece := os.read(ours, 4096):
                told += piece
        except OSError:
            pass  # Linux says so where the other end is closed
        os.close(ours)
        assert child.wait() == 1 and told.endswith(b"ValueError: mine\r\n")
        shown[name] = told.decode().splitlines()[0]
    for name, line in shown.items():
        flag = f" --data-dir '{tmp_path / name}'" if name else ""
        run_id = Storage(tmp_path / (name or ".watcherml")).list_runs()[0]["run_id"]
        assert line == f"WatcherML recorded this failure. What was missing and why: watcher{flag} inspect {run_id}"


def test_what_a_failing_script_writes_into_a_pipe_stays_its_own(tmp_path):
    child = fails(tmp_path, {}, subprocess.PIPE)
    assert child.communicate()[1].startswith(b"Traceback") and child.returncode == 1
