"""A call of the journal that is cut in two, by a signal or a removed store; and what a long run costs its process."""

import contextlib
import os
import shutil
import signal

import psutil
import pytest

from watcherml.store import journal, spool
from watcherml.store.journal import open_spool
from watcherml.store.spool import FIRST_BYTES, RECORD
from watcherml.store.storage import Storage


@pytest.fixture
def on_signal():
    """Return what sets the handler of a signal for the length of the test."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda handler: signal.signal(signal.SIGUSR1, handler)
    signal.signal(signal.SIGUSR1, before)


def interrupt(monkeypatch, name):
    """Let the signal arrive right after each system call of that name, where the interpreter looks for one."""
    original = getattr(os, name)

    def call(*arguments, **named):
        result = original(*arguments, **named)
        signal.raise_signal(signal.SIGUSR1)
        return result

    monkeypatch.setattr(spool.os, name, call)


def in_time(work):
    """Do it in the main thread, where handlers run; a deadlock is an error and no hang of the suite."""

    def give_up(*_):
        raise TimeoutError("the handler waits for what it has interrupted")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(20)
    try:
        return work()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Enough(Exception):
    """Takes a transaction back."""


def points(tmp_path):
    """Return what a reader makes of the journals: name, value and step of each point."""
    folder, odd, found = tmp_path / "spool", set(), []
    with contextlib.suppress(Enough), Storage(tmp_path / "store").database.writing() as connection:
        connection.execute("PRAGMA defer_foreign_keys = ON")  # the run itself is not on record here
        journal.fold(connection, folder, "r", final=frozenset(folder.iterdir()), odd=odd)
        found = connection.execute(
            "SELECT name, value, step FROM metrics"
            " JOIN metric_ranges ON metrics.rowid BETWEEN first_point AND last_point"
            " JOIN metric_names USING (source_id, key)"
        ).fetchall()
        raise Enough
    assert not odd
    return sorted(tuple(one) for one in found)


@pytest.mark.parametrize("plain", [False, True], ids=["mapped", "lines"])
@pytest.mark.parametrize("cut_after", ["open", "write", "close"])
def test_a_handler_may_log_in_the_middle_of_a_call_that_logs(tmp_path, monkeypatch, on_signal, plain, cut_after):
    ours = open_spool(tmp_path / "spool", "r", plain)
    ours.put(ours.key_of("old"), 1.0, 0, 1.0)
    told = []

    def handler(*_):
        number = len(told)
        if number < 3:
            told.append(name := f"handler {number}")
            ours.put(ours.key_of(name), 2.0, 1, 1.0)
            ours.put(ours.key_of("old"), 3.0, number, 1.0)

    on_signal(handler)
    interrupt(monkeypatch, cut_after)
    in_time(lambda: ours.put(ours.key_of("new"), 4.0, 2, 1.0))
    in_time(lambda: ours.put(ours.key_of("newer"), 5.0, 3, 1.0))
    monkeypatch.undo()
    ours.close()
    expected = [("old", 1.0, 0), ("new", 4.0, 2), ("newer", 5.0, 3)]
    expected += [(name, 2.0, 1) for name in told] + [("old", 3.0, number) for number in range(len(told))]
    assert points(tmp_path) == sorted(expected)


def test_a_handler_may_log_while_the_next_segment_is_made(tmp_path, monkeypatch, on_signal):
    ours = open_spool(tmp_path / "spool", "r", False)
    key = ours.key_of("x")
    for step in range(FIRST_BYTES // RECORD.size - 1):
        ours.put(key, 1.0, step, 1.0)
    told = []
    on_signal(lambda *_: told or (told.append(1), ours.put(key, 2.0, 7, 1.0)))
    interrupt(monkeypatch, "open")
    in_time(lambda: ours.put(key, 3.0, 8, 1.0))
    monkeypatch.undo()
    ours.close()
    found = points(tmp_path)
    assert told and len(found) == FIRST_BYTES // RECORD.size + 1 and found[-2:] == [("x", 2.0, 7), ("x", 3.0, 8)]


@pytest.mark.parametrize(("plain", "cut_after"), [(False, "open"), (False, "write"), (False, "close"), (True, "write")])
def test_names_keep_their_points_when_ctrl_c_cuts_a_call_and_training_goes_on(
    tmp_path, monkeypatch, on_signal, plain, cut_after
):
    ours = open_spool(tmp_path / "spool", "r", plain)
    ours.put(ours.key_of("loss"), 1.0, 0, 1.0)

    def stop(*_):
        raise KeyboardInterrupt

    on_signal(stop)
    interrupt(monkeypatch, cut_after)
    with pytest.raises(KeyboardInterrupt):
        ours.put(ours.key_of("epoch_loss"), 2.0, 1, 1.0)
    monkeypatch.undo()
    ours.put(ours.key_of("accuracy"), 0.9, 2, 1.0)
    ours.put(ours.key_of("epoch_loss"), 3.0, 3, 1.0)
    ours.close()
    found = [one for one in points(tmp_path) if one != ("epoch_loss", 2.0, 1)]  # the cut one: written or not
    assert found == [("accuracy", 0.9, 2), ("epoch_loss", 3.0, 3), ("loss", 1.0, 0)]


def test_a_new_name_right_after_the_store_was_removed_takes_no_other_s_points(tmp_path):
    ours = open_spool(tmp_path / "spool", "r", False)
    ours.put(ours.key_of("loss"), 1.0, 0, 1.0)
    shutil.rmtree(tmp_path / "spool")
    key = ours.key_of("accuracy")
    ours.renew()
    ours.put(ours.key_of("loss"), 2.0, 1, 1.0)
    ours.put(key, 0.5, 1, 1.0)
    ours.close()
    assert points(tmp_path) == [("accuracy", 0.5, 1), ("loss", 2.0, 1)]


def test_a_name_that_a_full_disk_took_in_part_is_written_again(tmp_path, monkeypatch):
    ours = open_spool(tmp_path / "spool", "r", False)
    ours.put(ours.key_of("loss"), 1.0, 0, 1.0)
    original = os.write
    monkeypatch.setattr(spool.os, "write", lambda descriptor, data: original(descriptor, data[:5]))
    with pytest.raises(OSError, match="only part"):
        ours.key_of("a name that is long")
    monkeypatch.undo()
    ours.put(ours.key_of("short"), 2.0, 1, 1.0)
    ours.put(ours.key_of("a name that is long"), 3.0, 2, 1.0)
    ours.close()
    assert points(tmp_path) == [("a name that is long", 3.0, 2), ("loss", 1.0, 0), ("short", 2.0, 1)]


def test_a_long_run_holds_no_more_descriptors_and_mappings_than_a_short_one(tmp_path, monkeypatch):
    monkeypatch.setattr(spool, "LARGEST_BYTES", FIRST_BYTES)
    ours = open_spool(tmp_path / "spool", "r", False)
    key = ours.key_of("x")
    ours.put(key, 1.0, 0, 1.0)
    process = psutil.Process()

    def held():
        return process.num_fds(), sum(".points" in one.path for one in process.memory_maps(grouped=False))

    before, made = held(), 12
    for step in range(made * FIRST_BYTES // RECORD.size):
        ours.put(key, 1.0, step + 1, 1.0)
    assert len(list((tmp_path / "spool").glob("*.points"))) > made
    assert held() == before
    ours.close()
