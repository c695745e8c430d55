"""The metric spool: every point survives a SIGKILL, and none is taken twice."""

import math
import os
import signal
import subprocess
import sys
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from watcherml.store import journal
from watcherml.store.journal import open_spool
from watcherml.store.spool import FIRST_BYTES, RECORD, MappedSpool
from watcherml.store.storage import Storage


@pytest.fixture
def run(storage):
    import watcherml

    run = watcherml.Run("demo", {}, storage, quiet=True).start()
    run._sampler.stop()  # it folds too, at moments of its own
    yield run
    run.interrupt("test over")


def test_points_survive_sigkill_and_the_run_is_called_killed(storage, tmp_path):
    code = (
        "import watcherml, sys, os, signal\n"
        "run = watcherml.Run('p', {}, sys.argv[1], quiet=True).start()\n"
        "for i in range(5000): run.log_metric('loss', i / 7, step=i)\n"
        "print(run.run_id, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    child = subprocess.run([sys.executable, "-c", code, str(storage.path)], capture_output=True, text=True)
    assert child.returncode == -signal.SIGKILL
    run_id = child.stdout.strip()
    storage.settle()
    row = storage.get_run(run_id)
    assert row["status"] == "killed" and row["ended_at"] is not None
    points = storage.get_metrics(run_id)
    assert [point["step"] for point in points] == list(range(5000))
    assert [point["value"] for point in points] == [i / 7 for i in range(5000)]
    assert not list(storage.runs.spool_folder.glob("*"))


def test_folding_twice_takes_each_point_once(storage, run):
    for step in range(10):
        run.log_metric("loss", step, step=step)
        storage.runs.fold(run.run_id)
    storage.runs.fold(run.run_id)
    assert [point["value"] for point in storage.get_metrics(run.run_id)] == list(range(10))


@pytest.fixture
def lines(monkeypatch):
    """Make the journal use lines, as it does where files cannot be mapped."""
    monkeypatch.setenv("WATCHERML_PLAIN_IO", "1")


def test_a_torn_last_line_waits_for_its_rest(lines, storage, run):
    run.log_metric("loss", 1.0, step=0)
    path = next(storage.runs.spool_folder.glob("*.jsonl"))
    with path.open("ab") as stream:
        stream.write(b'["loss", 2.0, 1')
    storage.runs.fold(run.run_id)
    assert len(storage.get_metrics(run.run_id)) == 1
    with path.open("ab") as stream:
        stream.write(b", 5.0]\n")
    storage.runs.fold(run.run_id)
    assert [point["value"] for point in storage.get_metrics(run.run_id)] == [1.0, 2.0]


def test_a_record_that_is_being_written_stops_its_file_until_it_is_whole(storage, run):
    for step in range(5):
        run.log_metric("loss", float(step), step=step)
    path = next(storage.runs.spool_folder.glob("*.points"))
    whole = path.read_bytes()
    mark = RECORD.size * 3 + RECORD.size - 4  # of the third point
    with path.open("r+b") as stream:
        stream.seek(mark)
        stream.write(b"\0\0\0\0")
    storage.runs.fold(run.run_id)
    assert len(storage.get_metrics(run.run_id)) == 2
    with path.open("r+b") as stream:
        stream.write(whole)
    storage.runs.fold(run.run_id)
    assert [point["value"] for point in storage.get_metrics(run.run_id)] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_what_a_killed_thread_left_unfinished_does_not_hide_what_others_finished(storage, run):
    for step in range(5):
        run.log_metric("loss", float(step), step=step)
    path = next(storage.runs.spool_folder.glob("*.points"))
    with path.open("r+b") as stream:
        stream.seek(RECORD.size * 3)
        stream.write(bytes(RECORD.size))
    run.finish()
    assert [point["value"] for point in storage.get_metrics(run.run_id)] == [0.0, 1.0, 3.0, 4.0]
    assert not list(storage.runs.spool_folder.glob("*"))


def test_many_segments_and_many_names_keep_their_order(storage, run):
    count = FIRST_BYTES // RECORD.size * 5
    for step in range(count):
        run.log_metric(f"metric {step % 7}", float(step), step=step)
        if step % 3_000 == 0:
            storage.runs.fold(run.run_id)
    run.finish()
    points = storage.get_metrics(run.run_id)
    assert [point["value"] for point in points] == [float(step) for step in range(count)]
    assert all(point["name"] == f"metric {point['step'] % 7}" for point in points)
    assert [point["step"] for point in storage.get_metrics(run.run_id, ["metric 3"])] == list(range(3, count, 7))


def test_two_runs_that_fold_in_turn_keep_their_points_apart(storage, run):
    import watcherml

    other = watcherml.Run("demo", {}, storage, quiet=True).start()
    other._sampler.stop()
    for step in range(20):
        run.log_metric("a", float(step), step=step)
        other.log_metric("b", float(-step), step=step)
        storage.runs.fold(run.run_id)
        storage.runs.fold(other.run_id)
    other.finish()
    assert [point["value"] for point in storage.get_metrics(run.run_id)] == [float(step) for step in range(20)]
    assert [point["value"] for point in storage.get_metrics(other.run_id)] == [float(-step) for step in range(20)]


def test_threads_lose_no_point(storage, run):
    def work(number):
        for step in range(3_000):
            run.log_metric(f"thread {number}", float(step))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.finish()
    points = storage.get_metrics(run.run_id)
    for number in range(6):
        mine = [point["value"] for point in points if point["name"] == f"thread {number}"]
        assert mine == [float(step) for step in range(3_000)]


def test_a_full_disk_costs_points_and_one_warning_and_recovers(storage, run, monkeypatch):
    run.log_metric("loss", 0.0)
    run._spool.close()

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("watcherml.store.spool._reserve", refuse)
    with pytest.warns(RuntimeWarning, match="No space left"):
        run.log_metric("loss", 1.0)
    run.log_metric("loss", 2.0)
    assert len(run.problems) == 2
    monkeypatch.undo()
    run._spool._refused_until = 0.0
    run.log_metric("loss", 3.0)
    storage.runs.fold(run.run_id)
    assert [point["value"] for point in storage.get_metrics(run.run_id)] == [0.0, 3.0]


@given(st.lists(st.floats(width=64), max_size=30))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_every_double_reads_back(tmp_path_factory, values):
    storage = Storage(tmp_path_factory.mktemp("store"))
    import watcherml

    run = watcherml.Run("demo", {}, storage, quiet=True).start()
    try:
        for value in values:
            run.log_metric("x", value)
        storage.runs.fold(run.run_id)
        found = [point["value"] for point in storage.get_metrics(run.run_id)]
        assert len(found) == len(values)
        for given_value, read in zip(values, found, strict=True):
            assert read == given_value or (math.isnan(read) and math.isnan(given_value))
    finally:
        run.interrupt("done")


def test_a_line_that_cannot_be_stored_costs_only_itself(lines, storage, run):
    run.log_metric("loss", 1.0, step=0)
    path = next(storage.runs.spool_folder.glob("*.jsonl"))
    with path.open("ab") as stream:
        for line in (b'["loss", 2.0, 99999999999999999999, 5.0]', b'["\\ud800", 2.0, 1, 5.0]', b"[1]", b"null", b"{}"):
            stream.write(line + b"\n")
    run.log_metric("loss", 3.0, step=2)
    storage.settle()
    storage.runs.fold(run.run_id)
    assert [point["value"] for point in storage.get_metrics(run.run_id)] == [1.0, 3.0]


@pytest.mark.parametrize(("plain", "suffix"), [(False, "points"), (True, "jsonl")])
def test_a_forked_child_writes_to_its_own_file(tmp_path, plain, suffix):
    spool = open_spool(tmp_path, "r", plain)
    spool.put(spool.key_of("a"), 1.0, 0, 1.0)
    pid = os.fork()
    if pid == 0:
        spool.put(spool.key_of("b"), 2.0, 1, 2.0)
        os._exit(0)
    os.waitpid(pid, 0)
    spool.put(spool.key_of("a"), 3.0, 2, 3.0)
    spool.close()
    files = sorted(path.name.split(".")[1].partition("-")[0] for path in tmp_path.glob(f"r.*.{suffix}"))
    assert files == sorted([str(os.getpid()), str(pid)])


def test_fold_is_the_callers_transaction(storage, run):
    run.log_metric("loss", 1.0, step=0)
    with pytest.raises(ZeroDivisionError):
        with storage.database.writing() as connection:
            assert journal.fold(connection, storage.runs.spool_folder, run.run_id) == 1
            1 / 0  # noqa: B018
    storage.runs.fold(run.run_id)
    assert len(storage.get_metrics(run.run_id)) == 1


UNTIL_TOLD = """
import sys
from watcherml.store.journal import open_spool
from pathlib import Path
spool = open_spool(Path(sys.argv[1]), sys.argv[2], False)
key = spool.key_of("child")
for number in range(100):
    spool.put(key, float(number), None, 1.0)
print(flush=True)
input()
for number in range(100, 200):
    spool.put(key, float(number), None, 1.0)
"""


def test_what_a_living_child_writes_after_the_runs_end_is_kept(storage, run):
    child = subprocess.Popen(
        [sys.executable, "-c", UNTIL_TOLD, str(storage.runs.spool_folder), run.run_id],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    child.stdout.readline()
    run.log_metric("parent", 1.0)
    run.finish()
    assert sum(point["name"] == "child" for point in storage.get_metrics(run.run_id)) == 100
    child.communicate(b"\n")
    points = [point["value"] for point in storage.get_metrics(run.run_id) if point["name"] == "child"]
    assert points == [float(number) for number in range(200)]


def test_a_journal_goes_only_after_its_points_are_committed(storage, run, monkeypatch):
    for step in range(50):
        run.log_metric("loss", float(step), step=step)
    run._spool.close()
    seen = []
    unlink = type(storage.path).unlink

    def look(path, *arguments, **options):
        if path.suffix == ".points":
            seen.append(len(Storage(storage.path).runs.metrics(run.run_id)))
        return unlink(path, *arguments, **options)

    monkeypatch.setattr(type(storage.path), "unlink", look)
    storage.runs.end(run.run_id, "success", "", 1.0, None)
    assert seen == [50]


def test_threads_that_find_a_segment_full_at_once_share_the_next_one(tmp_path):
    spool = MappedSpool(tmp_path, "r")
    key = spool.key_of("x")
    for step in range(FIRST_BYTES // RECORD.size - 1):
        spool.put(key, 1.0, step, 0.0)
    # Both saw the first segment full; the second comes in when the first has made another.
    first, second = spool._next_segment(), spool._next_segment()
    assert first[0] is second[0] and (first[1], second[1]) == (RECORD.size, 2 * RECORD.size)
    assert len(list(tmp_path.glob("*.points"))) == 2
    spool.close()
