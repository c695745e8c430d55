"""Processes with and without the write-ahead log on one store at once."""

import contextlib
import os
import sqlite3
import subprocess
import sys

import pytest

import watcherml
from watcherml.store import copies
from watcherml.store.storage import Storage

RECORD = """
import sys, watcherml
run = watcherml.Run("p", {}, sys.argv[1], quiet=True).start()
for step in range(500):
    run.log_metric("loss", float(step), step)
if len(sys.argv) > 2:
    run.join_facts()
    print("open", flush=True)
    sys.stdin.read()
run.finish()
print(run.run_id, run.problems)
"""


def record(folder, plain, *more):
    return subprocess.Popen([sys.executable, "-W", "ignore", "-c", RECORD, folder, *more], text=True,
                            env={**os.environ, "WATCHERML_PLAIN_IO": plain}, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE)  # fmt: skip


def mode_of(folder):
    with open(folder / "watcherml.db", "rb") as stream:
        return {1: "delete", 2: "wal"}[stream.read(20)[19]]


@pytest.mark.parametrize("rounds", [1, pytest.param(8, marks=pytest.mark.long)])
def test_processes_of_both_kinds_record_at_once_without_an_error(tmp_path, rounds):
    for number in range(rounds):
        folder = tmp_path / str(number)
        started = [record(folder, str(index % 2)) for index in range(6)]
        for one in started:
            run_id, problems = one.communicate(timeout=100)[0].strip().split(" ", 1)
            assert problems == "[]"
            assert Storage(folder).get_run(run_id)["status"] == "success"
            assert len(Storage(folder).get_metrics(run_id)) == 500


@pytest.mark.parametrize(("first", "mode"), [("0", "wal"), ("1", "delete")])
def test_a_store_in_use_keeps_its_journal_until_nobody_uses_it(tmp_path, monkeypatch, first, mode):
    folder = tmp_path / "s"
    user = record(folder, first, "wait")
    assert user.stdout.readline() == "open\n" and mode_of(folder) == mode
    other = record(folder, "0" if first == "1" else "1")
    assert other.communicate(timeout=100)[0].endswith("[]\n") and mode_of(folder) == mode
    monkeypatch.setenv("WATCHERML_PLAIN_IO", "0" if first == "1" else "1")
    assert {row["status"] for row in Storage(folder).list_runs()} == {"running", "success"}
    assert user.communicate("", timeout=100)[0].endswith("[]\n")
    with watcherml.Run("p", {}, folder, quiet=True) as run:
        pass
    assert run.problems == [] and mode_of(folder) != mode


def test_a_copy_is_made_again_when_the_log_goes_away_meanwhile(tmp_path, monkeypatch):
    monkeypatch.setenv("WATCHERML_PLAIN_IO", "0")
    storage = Storage(tmp_path / "s")
    storage.create()
    writer = sqlite3.connect(storage.database.path)
    writer.execute("CREATE TABLE extra (x)")
    looked, calls = copies.beside, []

    def then_checkpointed(path):
        found = looked(path)
        calls.append(found)
        if len(calls) == 2:
            writer.close()  # the last one folds the log and removes it
        return found

    monkeypatch.setattr(copies, "beside", then_checkpointed)
    with contextlib.closing(copies.memory_copy(storage.database.path)) as copy:
        assert copy.execute("SELECT COUNT(*) FROM extra").fetchone()[0] == 0
    assert calls[1] and not calls[-1]
