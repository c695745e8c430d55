"""A process may be forked while a run is open: its children record runs of their own, and nobody hangs."""

import multiprocessing
import sqlite3
import threading
import time

import pytest

import watcherml
from watcherml.store import gate
from watcherml.store.storage import Storage


def _record(arguments):
    path, number = arguments
    run = watcherml.Run("child", {"k": number}, path, quiet=True).start()
    for step in range(20):
        run.log_metric("x", float(step), step=step)
    run.finish()
    return list(run.problems)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system")
def test_workers_forked_while_a_run_is_being_recorded_record_runs_of_their_own(storage):
    for _ in range(3):
        run = watcherml.Run("parent", {}, storage, quiet=True).start()
        with multiprocessing.get_context("fork").Pool(4) as pool:
            problems = pool.map_async(_record, [(storage.path, number) for number in range(8)]).get(timeout=60)
        run.finish()
        assert problems == [[]] * 8 and run.problems == []
    with storage.database.reading() as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert connection.execute("SELECT COUNT(*) FROM runs WHERE status = 'success'").fetchone()[0] == 27
        assert connection.execute("SELECT COUNT(*) FROM metric_points").fetchone()[0] == 3 * 8 * 20


def test_a_fork_waits_for_a_thread_inside_and_not_for_ever(tmp_path, monkeypatch):
    storage = Storage(tmp_path / "s")
    storage.create()
    inside, leave = threading.Event(), threading.Event()

    def stay():
        with storage.database.writing():
            inside.set()
            leave.wait(20)

    thread = threading.Thread(target=stay)
    thread.start()
    inside.wait(5)
    monkeypatch.setattr(gate, "_PATIENCE_SECONDS", 0.3)
    began = time.monotonic()
    gate._before()
    assert time.monotonic() - began >= 0.3
    gate._after_in_parent()
    leave.set()
    thread.join()
    taken = threading.Event()

    def enter():
        with storage.database.writing():
            taken.set()

    gate._before()
    threading.Thread(target=enter, daemon=True).start()
    assert not taken.wait(0.2)  # nobody gets in while the process is being forked
    gate._after_in_parent()
    assert taken.wait(5)
    with sqlite3.connect(storage.database.path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
