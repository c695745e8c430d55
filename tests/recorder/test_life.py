"""How runs end: whatever breaks in the recording, training sees its own exception and nothing else."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import traceback
import warnings

import pytest

import watcherml
from watcherml.errors import StoreError
from watcherml.platform import signal_name
from watcherml.recorder import life
from watcherml.recorder.source import SourceState
from watcherml.store import endings

# Where the recording can break, as attribute paths from a run; "torch" paths are modules of the recorder.
PLACES = [
    "storage.clock",
    "storage.database.writing",
    "storage.database.reading",
    "storage.runs.add",
    "storage.runs.beat",
    "storage.runs.note",
    "storage.runs.end",
    "storage.runs.get",
    "storage.runs.artifacts",
    "storage.runs.largest_samples",
    "storage.runs.add_receipt",
    "storage.runs.add_artifact",
    "storage.evidence.put_blob",
    "storage.evidence.add_capsule",
    "_spool.key_of",
    "_spool.put",
    "_spool.close",
    "_sampler.start",
    "_sampler.stop",
    "_sampler.sample",
    "_recording.join_facts",
    "_recording.note_device",
    "_recording.artifacts.finish",
]
MODULES = [
    "watcherml.recorder.gather.source.collect",
    "watcherml.recorder.gather.environment.collect",
    "watcherml.recorder.gather.machine.collect",
    "watcherml.recorder.recording.DeviceWatch",
    "watcherml.recorder.recording.this_process",
    "watcherml.recorder.run.ranks.here",
    "watcherml.forensics.capture.capture",
    "threading.Thread.start",
]
# Only one of the two endings comes by these.
ON_FAILURE_ONLY = {"storage.evidence.add_capsule", "watcherml.forensics.capture.capture"}
ON_SUCCESS_ONLY = {
    "storage.runs.get", "storage.runs.artifacts", "storage.runs.largest_samples", "storage.runs.add_receipt",
    "storage.database.reading",
}  # fmt: skip
ERRORS = [
    OSError(28, "No space left on device"),
    sqlite3.OperationalError("database is locked"),
    StoreError("cannot write the store"),
    MemoryError(),
    RuntimeError("can't start new thread"),
    AttributeError("half imported"),
]


def breaking(error):
    def broken(*_, **__):
        raise error

    return broken


def break_it(monkeypatch, run, place, error):
    if place in MODULES:
        monkeypatch.setattr(place, breaking(error))
        return
    *parents, name = place.split(".")
    owner = run
    for parent in parents:
        owner = getattr(owner, parent)
    monkeypatch.setattr(owner, name, breaking(error))


def users_error():
    """An exception with a cause, a context and a note of its own."""
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise OSError("second")  # noqa: B904 - the context is the point
    except OSError as cause:
        error = ValueError("size mismatch")
        error.__cause__ = cause
        error.__context__ = LookupError("context")
        error.__notes__ = ["a note"]
    return error


def deep(error):
    raise error


def train(run, tmp_path, error=None):
    with run:
        run.set_dataset(tmp_path / "data")
        for step in range(5):
            run.log_metric("loss", 1.0, step=step)
        run.log_artifact(tmp_path / "data" / "a.txt")
        if error is not None:
            deep(error)


@pytest.fixture
def files(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("hello")
    state = SourceState({"status": "available", "commit": None, "dirty": True}, b"diff --git a/x b/x\n")
    monkeypatch.setattr("watcherml.recorder.gather.source.collect", lambda *_: state)
    return tmp_path


def cases():
    for number, place in enumerate([*PLACES, *MODULES]):
        for index, error in enumerate(ERRORS):
            marks = [] if index == number % len(ERRORS) else [pytest.mark.long]
            yield pytest.param(place, error, id=f"{place}-{type(error).__name__}", marks=marks)


@pytest.mark.parametrize(("place", "breakage"), list(cases()))
def test_training_sees_its_own_exception_whatever_breaks(storage, files, monkeypatch, place, breakage):
    error = users_error()
    before = (error.__cause__, error.__context__, error.__suppress_context__, list(error.__notes__))
    run = watcherml.Run("demo", {"lr": 1}, storage, quiet=True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        break_it(monkeypatch, run, place, breakage)
        with pytest.raises(ValueError) as caught:
            train(run, files, error)
        monkeypatch.undo()
    assert caught.value is error
    assert (error.__cause__, error.__context__, error.__suppress_context__, error.__notes__) == before
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert names[-2:] == ["train", "deep"]
    assert run.status == "failed"
    if place not in ON_SUCCESS_ONLY:
        assert len([one for one in seen if "could not record" in str(one.message)]) == 1
        assert run.problem_count >= 1


@pytest.mark.parametrize(("place", "breakage"), list(cases()))
def test_training_that_ends_well_notices_nothing(storage, files, monkeypatch, capsys, place, breakage):
    run = watcherml.Run("demo", {"lr": 1}, storage)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        break_it(monkeypatch, run, place, breakage)
        train(run, files)
        monkeypatch.undo()
    assert run.status == "success"
    if place not in ON_FAILURE_ONLY:
        assert len([one for one in seen if "could not record" in str(one.message)]) == 1
        assert run.problem_count >= 1


def test_points_are_dropped_one_by_one_while_the_journal_refuses_them(storage, monkeypatch):
    run = watcherml.Run("demo", {}, storage, quiet=True)
    original = type(run._spool).put
    with pytest.warns(RuntimeWarning, match="could not record") as seen:
        with run:
            run.log_metric("loss", 0.0)
            monkeypatch.setattr(type(run._spool), "put", breaking(OSError(5, "Input/output error")))
            for _ in range(2_000):
                run.log_metric("loss", 1.0)
            monkeypatch.setattr(type(run._spool), "put", original)
            run.log_metric("loss", 2.0)
    assert len(seen) == 1 and run.problem_count == 2_000 and len(run.problems) == 1_000
    assert [point["value"] for point in storage.get_metrics(run.run_id)] == [0.0, 2.0]
    assert storage.get_run(run.run_id)["facts"]["recording_problems"]["count"] == 2_000


def test_a_store_that_comes_back_has_the_whole_run(storage, monkeypatch):
    monkeypatch.setattr("watcherml.recorder.sampler.INTERVAL_SECONDS", 0.05)
    run = watcherml.Run("demo", {"lr": 1}, storage, quiet=True)
    monkeypatch.setattr(storage.runs, "add", breaking(sqlite3.OperationalError("disk I/O error")))
    with pytest.warns(RuntimeWarning):
        run.start()
        run.log_metric("loss", 1.0)
    monkeypatch.undo()
    run.finish()
    assert storage.get_run(run.run_id)["status"] == "success"
    assert len(storage.get_metrics(run.run_id)) == 1


def test_warnings_that_are_errors_or_hooks_that_raise_do_no_harm(storage, monkeypatch):
    monkeypatch.setattr(warnings, "showwarning", breaking(KeyError("hook")))
    run = watcherml.Run("demo", {}, storage, quiet=True)
    monkeypatch.setattr(storage.runs, "note", breaking(OSError(28, "full")))
    for action in ("error", "always"):
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            with watcherml.Run("demo", {}, storage, quiet=True) as run:
                pass
        assert run.status == "success" and run.problem_count


class Wordless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def test_problems_and_failures_without_words(storage):
    problems = life.Problems("r")
    with pytest.warns(RuntimeWarning, match="cannot be put in words"):
        problems.note(Wordless())
    error = Wordless()
    run = watcherml.Run("demo", {}, storage, quiet=True)
    with pytest.raises(Wordless) as caught:
        with run:
            raise error
    assert caught.value is error and storage.get_run(run.run_id)["status"] == "failed"
    assert storage.get_capsule(run.run_id)["failure"]["exception_type"].endswith("Wordless")


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (SystemExit(), ("success", "sys.exit(0)")),
        (SystemExit(0), ("success", "sys.exit(0)")),
        (SystemExit(False), ("success", "sys.exit(0)")),
        (SystemExit(1), ("failed", "SystemExit")),
        (SystemExit("stop"), ("failed", "SystemExit")),
        (SystemExit(""), ("failed", "SystemExit")),
        (KeyboardInterrupt(), ("interrupted", "KeyboardInterrupt")),
        (GeneratorExit(), ("interrupted", "GeneratorExit")),
        (asyncio.CancelledError(), ("interrupted", "CancelledError")),
        (RuntimeError("x"), ("failed", "RuntimeError")),
        (Wordless(), ("failed", f"{__name__}.Wordless")),
        (BaseException("odd"), ("failed", "BaseException")),
    ],
)
def test_what_an_exception_makes_of_a_run(storage, error, ending):
    assert life.ending_of(error) == ending
    run = watcherml.Run("demo", {}, storage, quiet=True)
    with pytest.raises(type(error)) as caught:
        with run:
            raise error
    assert caught.value is error
    row = storage.get_run(run.run_id)
    assert (row["status"], row["end_reason"]) == ending


def test_ctrl_c_while_evidence_is_captured_still_ends_the_run_as_failed(storage, monkeypatch):
    run = watcherml.Run("demo", {}, storage, quiet=True)
    monkeypatch.setattr("watcherml.forensics.capture.capture", breaking(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        with run:
            raise ValueError("x")
    assert storage.get_run(run.run_id)["status"] == "failed"


def test_two_threads_end_a_run_once(storage, capsys):
    run = watcherml.Run("demo", {}, storage).start()
    threads = [threading.Thread(target=run.finish) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert capsys.readouterr().out.count("WatcherML recorded this run.") == 1


def test_concurrent_runs_keep_their_points_and_endings_apart(storage):
    def work(number):
        try:
            with watcherml.Run(f"p{number}", {"n": number}, storage, quiet=True) as run:
                for step in range(200):
                    run.log_metric("x", number, step=step)
                if number % 2:
                    raise ValueError(str(number))
        except ValueError:
            pass

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = storage.list_runs()
    assert {row["project"]: row["status"] for row in rows} == {
        f"p{number}": "failed" if number % 2 else "success" for number in range(6)
    }
    for row in rows:
        points = storage.get_metrics(row["run_id"])
        assert [point["step"] for point in points] == list(range(200))
        assert {point["value"] for point in points} == {float(row["project"][1:])}
        if row["status"] == "failed":
            assert storage.get_capsule(row["run_id"])["failure"]["message"] == row["project"][1:]


def test_what_comes_after_the_end_is_refused_and_counted(storage, tmp_path):
    (tmp_path / "a").write_text("a")
    run = watcherml.Run("demo", {}, storage, quiet=True).start()
    run.finish()
    with pytest.warns(RuntimeWarning, match="after the end of run"):
        run.log_metric("late", 1.0)
    run.log_artifact(tmp_path / "a")
    run.set_dataset(tmp_path / "a")
    assert run.problem_count == 3
    assert storage.get_metrics(run.run_id) == [] and not list(storage.runs.spool_folder.glob("*"))


CHILD = """
import os, signal, sys, watcherml
run = watcherml.Run('p', {}, sys.argv[1], quiet=True).start()
run.log_metric('loss', 1.0, step=7)
run._sampler.stop()
print(run.run_id, flush=True)
"""
HARD_ENDS = {
    "os.kill(os.getpid(), signal.SIGKILL)": "killed by SIGKILL",
    "os.kill(os.getpid(), signal.SIGTERM)": "killed by SIGTERM",
    "os.abort()": "killed by SIGABRT",
    "os._exit(3)": "its process exited with code 3 and did not end the run",
}


def start_child(storage, last_line):
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD + last_line, str(storage.path)], stdout=subprocess.PIPE, text=True
    )
    run_id = child.stdout.readline().strip()
    child.stdout.close()
    return child, run_id


def gone(pid):
    while endings.how_ended(endings.ProcessId(pid, started_at(pid), "")) == endings._UNKNOWN:
        pass


def started_at(pid):
    import psutil

    return psutil.Process(pid).create_time()


@pytest.mark.parametrize("last_line", HARD_ENDS)
def test_a_process_that_nobody_has_collected_yet_says_how_it_ended(storage, last_line):
    child, run_id = start_child(storage, last_line)
    gone(child.pid)
    with storage.database.writing() as connection:
        connection.execute("UPDATE runs SET last_step = NULL")  # as if no heartbeat had had the time to tell it
    storage.settle()
    row = storage.get_run(run_id)
    assert (row["status"], row["end_reason"]) == ("killed", HARD_ENDS[last_line])
    assert row["ended_at"] >= row["started_at"] and row["last_step"] == 7
    assert storage.get_metrics(run_id)[0]["step"] == 7
    child.wait()


def test_a_process_that_was_collected_takes_its_signal_with_it(storage):
    child, run_id = start_child(storage, "os.kill(os.getpid(), signal.SIGKILL)")
    assert child.wait() == -signal.SIGKILL
    storage.settle()
    row = storage.get_run(run_id)
    assert (row["status"], row["end_reason"]) == ("killed", "its process is gone; how it ended is not known")


def elsewhere(storage, run, silent_seconds):
    with storage.database.writing() as connection:
        connection.execute(
            "UPDATE runs SET boot_id = 'another machine', heartbeat_at = heartbeat_at - ? WHERE run_id = ?",
            (silent_seconds, run.run_id),
        )


@pytest.mark.parametrize(("silent_seconds", "status"), [(5, "running"), (100, "running"), (300, "killed")])
def test_a_run_of_another_machine_is_judged_by_its_silence(storage, silent_seconds, status):
    run = watcherml.Run("demo", {}, storage, quiet=True).start()
    run._sampler.stop()
    elsewhere(storage, run, silent_seconds)
    storage.settle()
    row = storage.get_run(run.run_id)
    assert row["status"] == status and (status == "running" or "no signal is known" in row["end_reason"])
    run.finish()


def test_a_runs_own_word_replaces_the_conclusion_that_it_was_killed(storage):
    run = watcherml.Run("demo", {}, storage, quiet=True).start()
    run._sampler.stop()
    elsewhere(storage, run, 1_000)
    storage.settle()
    assert storage.get_run(run.run_id)["status"] == "killed"
    run.finish()
    row = storage.get_run(run.run_id)
    assert (row["status"], row["end_reason"]) == ("success", "")
    storage.runs.end(run.run_id, "killed", "late", 1.0, None)
    assert storage.get_run(run.run_id)["status"] == "success"


def test_signals_have_names():
    assert signal_name(9) == "SIGKILL" and signal_name(200) == "signal 200"


def test_a_deleted_working_directory_does_not_stop_a_run(tmp_path, monkeypatch):
    gone_folder = tmp_path / "gone"
    gone_folder.mkdir()
    monkeypatch.chdir(gone_folder)
    gone_folder.rmdir()
    with watcherml.Run(None, {}, tmp_path / "store", quiet=True) as run:
        run.log_metric("a", 1)
    assert run.status == "success" and not run.problems
    os.chdir(tmp_path)
