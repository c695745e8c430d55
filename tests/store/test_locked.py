"""A store that another process keeps locked, or whose disk is full: training goes on, endings wait, readers read."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import places
import pytest

import watcherml
from watcherml.errors import StoreError
from watcherml.store import aside
from watcherml.store.storage import Storage

HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
connection.execute(f"BEGIN {sys.argv[2]}")
if len(sys.argv) > 3:  # pages of an unfinished transaction go into the file
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("CREATE TABLE filler (x)")
    connection.executemany("INSERT INTO filler VALUES (?)", [("x" * 3000,)] * 200)
print("held", flush=True)
sys.stdin.read()
"""
# Locks cost training this much in all, on a machine that does much else.
ALL_SECONDS = 12.0


@contextlib.contextmanager
def locked(storage, how="IMMEDIATE", *more):
    """Have another process hold a transaction for the block."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, storage.database.path, how, *more], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert holder.stdout.readline() == "held\n"
    try:
        yield
    finally:
        holder.communicate("", timeout=30)


def start(storage, **options):
    run = watcherml.Run("demo", {"lr": 0.1}, storage, quiet=True, **options).start()
    run.join_facts()
    return run


@pytest.fixture
def told():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield seen


def test_a_locked_store_costs_training_a_few_seconds_and_nothing_is_lost(storage, tmp_path, told):
    run = start(storage)
    for number in range(5):
        (tmp_path / f"f{number}").write_text(str(number))
    began = time.monotonic()
    with locked(storage):
        run.log_metric("loss", 1.0, step=7)
        for number in range(5):
            run.log_artifact(tmp_path / f"f{number}")
        run.set_dataset(tmp_path / "f0")
        run.finish()
        took = time.monotonic() - began
        assert took < ALL_SECONDS and run.status == "success"
        # Who looks now sees it too, though the store cannot take it.
        assert Storage(storage.path).get_run(run.run_id)["status"] == "success"
    assert len([one for one in told if "WatcherML" in str(one.message)]) == 1
    assert "waits in" in run.problems[-1]
    reader = Storage(storage.path)
    row = reader.get_run(run.run_id)
    assert (row["status"], row["last_step"]) == ("success", 7) and row["ended_at"] is not None
    assert {"git", "environment", "dataset", "recording_problems"} <= row["facts"].keys()
    found = reader.runs.artifacts(run.run_id)
    assert [os.path.basename(one["path"]) for one in found] == [f"f{number}" for number in range(5)]
    assert all(one["sha256"] for one in found)
    assert [point["value"] for point in reader.get_metrics(run.run_id)] == [1.0]
    assert not list(storage.runs.spool_folder.iterdir())


def test_threads_that_wait_for_the_lock_do_not_hold_up_the_end(storage, told, monkeypatch):
    monkeypatch.setattr("watcherml.recorder.recording.PATIENCE_SECONDS", 0.2)
    run = start(storage)
    with locked(storage):
        waiting = threading.Thread(target=run._sampler._loop)  # a reading is due
        run._sampler._thread = waiting
        waiting.start()
        time.sleep(0.5)
        began = time.monotonic()
        run.finish()
        # The sampler would be given up after 5 seconds.
        assert time.monotonic() - began < 4.8 and not waiting.is_alive()


def test_another_process_takes_the_ending_and_tidies_up_after_the_living_one(storage, told, monkeypatch):
    monkeypatch.setattr("watcherml.recorder.recording.PATIENCE_SECONDS", 0.2)
    run = start(storage)
    with locked(storage):
        run.log_metric("loss", 1.0)
        run.finish()
    assert len(list(storage.runs.spool_folder.iterdir())) == 3  # points, names, the ending
    done = subprocess.run([sys.executable, "-m", "watcherml", "--data-dir", storage.path, "runs", "--format", "json"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert '"success"' in done.stdout and not list(storage.runs.spool_folder.iterdir())
    assert len(storage.get_metrics(run.run_id)) == 1


def test_what_is_refused_while_training_goes_on_comes_with_a_later_heartbeat(storage, tmp_path, told, monkeypatch):
    monkeypatch.setattr("watcherml.recorder.recording.PATIENCE_SECONDS", 0.2)
    run = start(storage)
    (tmp_path / "f").write_text("f")
    with locked(storage):
        run.log_artifact(tmp_path / "f")
        run.set_dataset(tmp_path / "f")
        run.log_artifact(tmp_path / "f")  # the same version is the same artifact
    run._sampler._deliver(*run._sampler.sample())
    assert len(storage.runs.artifacts(run.run_id)) == 1 and "dataset" in storage.get_run(run.run_id)["facts"]
    run.finish()
    assert storage.get_run(run.run_id)["status"] == "success" and run.problem_count == 2
    assert len(storage.runs.artifacts(run.run_id)) == 1


def test_a_failure_and_its_capsule_are_there_when_the_lock_is_gone(storage, told, monkeypatch):
    monkeypatch.setattr("watcherml.recorder.recording.PATIENCE_SECONDS", 0.2)
    run = start(storage)
    with locked(storage):
        with pytest.raises(ValueError, match="shapes"):
            with run:
                raise ValueError("shapes differ")
    reader = Storage(storage.path)
    assert reader.get_capsule(run.run_id)["failure"]["message"] == "shapes differ"
    assert reader.get_run(run.run_id)["status"] == "failed"


def test_a_run_that_starts_and_ends_under_a_lock_is_there_afterwards(storage, told, monkeypatch):
    monkeypatch.setattr("watcherml.recorder.recording.PATIENCE_SECONDS", 0.2)
    storage.create()
    with locked(storage):
        run = start(storage)
        run.log_metric("loss", 1.0)
        run.finish()
    row = storage.list_runs()[0]
    assert (row["run_id"], row["status"], row["config"]) == (run.run_id, "success", {"lr": 0.1})
    assert len(storage.get_metrics(run.run_id)) == 1
    assert {"git", "environment", "machine"} <= storage.get_run(run.run_id)["facts"].keys()


def test_an_ending_that_is_taken_twice_changes_nothing(storage, told, monkeypatch):
    monkeypatch.setattr("watcherml.recorder.recording.PATIENCE_SECONDS", 0.2)
    run = start(storage)
    with locked(storage):
        with pytest.raises(ValueError):
            with run:
                raise ValueError("x")
    (path,) = aside.endings(storage.runs.spool_folder)
    data = path.read_bytes()
    first = storage.get_run(run.run_id)
    assert not path.exists()
    path.write_bytes(data)  # killed between the commit and the removal of the file
    assert storage.get_run(run.run_id) == first
    with storage.database.reading() as connection:
        assert connection.execute("SELECT COUNT(*) FROM capsules").fetchone()[0] == 1


DAMAGED = ["", "{", "[]", '{"format": 2, "run_id": "a", "end": {}}', '{"format": 1}',
           '{"format": 1, "run_id": "a", "end": {"status": "odd"}}',
           '{"format": 1, "run_id": "a", "run": {"no": 1}, "end": {}}']  # fmt: skip


def test_damaged_endings_hide_no_other(storage, told):
    run = start(storage)
    damaged = [storage.runs.spool_folder / f"a.{number}-abc.ending" for number in range(len(DAMAGED))]
    for path, text in zip(damaged, DAMAGED, strict=True):
        path.write_text(text)
    with locked(storage):
        run.interrupt("enough")
    assert storage.get_run(run.run_id)["status"] == "interrupted"
    assert aside.endings(storage.runs.spool_folder) in ([], damaged) and all(path.exists() for path in damaged)


def fill(path):
    with open(path, "wb", buffering=0) as stream:
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while stream.write(bytes(size)):
                    pass


@pytest.mark.parametrize("plain", ["0", "1"])
def test_a_full_disk_does_not_lose_how_a_run_ended(tmp_path, monkeypatch, told, plain):
    monkeypatch.setenv("WATCHERML_PLAIN_IO", plain)
    with places.mounted(tmp_path / "disk", "3m") as disk:
        run = start(Storage(disk / "s"))
        run._sampler.stop()
        for step in range(1500):
            run.log_metric("loss", float(step), step)
        fill(disk / "filler")
        run.interrupt("the disk is full", "failed")
        assert aside.endings(disk / "s" / "spool"), "the store could not take it"
        os.unlink(disk / "filler")
        reader = Storage(disk / "s")
        row = reader.get_run(run.run_id)
        assert (row["status"], row["end_reason"], row["last_step"]) == ("failed", "the disk is full", 1499)
        assert len(reader.get_metrics(run.run_id)) == 1500
        assert not list((disk / "s" / "spool").iterdir())


def test_an_ending_that_is_larger_than_its_room_keeps_what_matters(tmp_path):
    room = aside.Room(tmp_path / "s", "r")
    room.reserve()
    end = {"status": "failed", "reason": "x", "at": 1.0, "last_step": 3}
    document = {"run": None, "facts": {"a": "x" * 70_000}, "capsules": [{"digest": "d"}], "end": end}
    whole = json.loads(aside._fitting({"format": 1, **document}, aside.ROOM_BYTES))
    assert whole["facts"] is None and whole["capsules"] == [{"digest": "d"}] and whole["end"] == end
    assert room.path.stat().st_blocks * 512 >= aside.ROOM_BYTES


KILLED = """
import os, sys, watcherml
run = watcherml.Run("p", {}, sys.argv[1], run_id="main", quiet=True).start()
run.join_facts()
for step in range(500):
    run.log_metric("loss", float(step), step)
os.kill(os.getpid(), 9)
"""


def killed_run(folder, plain):
    environment = {**os.environ, "WATCHERML_PLAIN_IO": plain}
    done = subprocess.run([sys.executable, "-c", KILLED, folder], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL


def commands(folder, plain):
    """Run what people look with, side by side; returns the time of all in seconds."""
    began = time.monotonic()
    asked = [["runs"], ["inspect", "main"], ["failures"]]
    running = [
        subprocess.Popen([sys.executable, "-m", "watcherml", "--data-dir", folder, *words], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, env={**os.environ, "WATCHERML_PLAIN_IO": plain})
        for words in asked
    ]  # fmt: skip
    for words, one in zip(asked, running, strict=True):
        out, told = one.communicate()
        assert one.returncode == 0, told
        assert "main" in out or words == ["failures"]
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("plain", "how", "more"),
    [("0", "IMMEDIATE", ()), ("0", "IMMEDIATE", ("write",)), ("0", "EXCLUSIVE", ()), ("1", "IMMEDIATE", ()),
     ("1", "EXCLUSIVE", ()), ("1", "EXCLUSIVE", ("write",))],
)  # fmt: skip
def test_a_lock_keeps_no_reader_out(tmp_path, monkeypatch, plain, how, more):
    killed_run(tmp_path / "s", plain)
    monkeypatch.setenv("WATCHERML_PLAIN_IO", plain)
    storage = Storage(tmp_path / "s")
    with locked(storage, how, *more):
        assert commands(tmp_path / "s", plain) < ALL_SECONDS
        storage.settle()
        points = [point["value"] for point in storage.get_metrics("main")]
        assert points == [float(step) for step in range(500)]
    assert Storage(tmp_path / "s").get_metrics("main")[-1]["step"] == 499


@pytest.mark.parametrize("plain", ["0", "1"])
@pytest.mark.parametrize("ended", [True, False])
def test_a_full_disk_keeps_no_reader_out(tmp_path, monkeypatch, plain, ended):
    monkeypatch.setenv("WATCHERML_PLAIN_IO", plain)
    with places.mounted(tmp_path / "disk", "2m") as disk:
        killed_run(disk / "s", plain)
        if ended:  # nothing lies beside the database, and a log needs a file of its own even to be read
            Storage(disk / "s").settle()
        fill(disk / "filler")
        assert commands(disk / "s", plain) < ALL_SECONDS
        assert len(Storage(disk / "s").get_metrics("main")) == 500
        os.unlink(disk / "filler")
        Storage(disk / "s").settle()
        assert Storage(disk / "s").get_run("main")["status"] == "killed"


def test_a_patch_that_the_store_refused_comes_with_the_ending(storage, tmp_path, told, monkeypatch):
    monkeypatch.setattr("watcherml.recorder.recording.PATIENCE_SECONDS", 0.2)
    os.system("git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x")
    (tmp_path / "code.py").write_text("x = 1\n")
    storage.create()
    with locked(storage):
        run = start(storage)
        run.finish()
    git = storage.get_run(run.run_id)["facts"]["git"]
    assert b"+x = 1" in storage.evidence.blob(git["patch"])


def test_a_cell_of_a_notebook_does_not_wait_long(storage):
    storage.create()
    with locked(storage):
        began = time.monotonic()
        with pytest.raises(StoreError, match="locked"):
            storage.evidence.add_cell({"session_id": "s", "seq": 1, "source": "", "status": "ok", "started_at": 1.0,
                                       "seconds": 0.0})  # fmt: skip
        assert time.monotonic() - began < ALL_SECONDS
