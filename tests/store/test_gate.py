"""A process may be forked while a run is open: its children record runs of their own, and nobody hangs."""

import multiprocessing
import os
import sqlite3
import subprocess
import sys
import threading
import time
import warnings

import pytest

import watcherml
from watcherml.errors import StoreError
from watcherml.store import gate, header
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


def somebody_inside(enter):
    """Start a thread that stays inside a block of the database; returns it and the event that lets it go."""
    inside, leave = threading.Event(), threading.Event()

    def stay():
        with enter():
            inside.set()
            leave.wait(20)

    thread = threading.Thread(target=stay)
    thread.start()
    assert inside.wait(5)
    return thread, leave


def test_a_fork_waits_for_a_thread_inside_and_not_for_ever(tmp_path, monkeypatch):
    storage = Storage(tmp_path / "s")
    storage.create()
    thread, leave = somebody_inside(storage.database.writing)
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


OTHER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
try: connection.execute("BEGIN IMMEDIATE"); print("came in")
except sqlite3.OperationalError as error: print(error)
"""


@pytest.mark.parametrize("look", [header.read_header, header.what_it_is], ids=lambda look: look.__name__)
def test_looking_at_the_file_takes_no_lock_from_a_thread_that_writes(storage, monkeypatch, look):
    monkeypatch.setenv("WATCHERML_PLAIN_IO", "1")  # here the locks lie on the file itself
    storage.create()
    with storage.database.writing() as connection:
        connection.execute("UPDATE runs SET title = 'x'")
        thread = threading.Thread(target=look, args=(storage.database.path,))
        thread.start()
        thread.join()
        done = subprocess.run(
            [sys.executable, "-c", OTHER, str(storage.database.path)], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "database is locked"
    assert not gate._gate.left_open and not gate._gate.inside


def test_a_child_forked_in_the_middle_says_so_and_keeps_its_points_in_the_journal(storage, monkeypatch):
    if not hasattr(os, "fork"):
        pytest.skip("no fork on this system")
    monkeypatch.setattr(gate, "_PATIENCE_SECONDS", 0.2)
    run = watcherml.Run("parent", {}, storage, quiet=True).start()
    thread, leave = somebody_inside(storage.database.reading)
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            run.log_metric("child", 1.0)
            try:
                storage.list_runs()
            except StoreError as error:
                os.write(write_end, str(error).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as stream:
        assert b"forked in the middle of an operation on a store" in stream.read()
    os.waitpid(child, 0)
    leave.set()
    thread.join()
    run.finish()
    assert [point["name"] for point in storage.get_metrics(run.run_id)] == ["child"]


FRESH = """
import multiprocessing, os, sys, watcherml

def work(number):
    run = watcherml.Run("child", {"k": number}, sys.argv[1], quiet=True).start()
    run.log_metric("x", 1.0)
    run.finish()
    return run.problems

run = watcherml.Run("parent", {}, sys.argv[1], quiet=True).start()
with multiprocessing.get_context("fork").Pool(4) as pool:
    print(pool.map_async(work, range(8)).get(timeout=30))
run.finish()
print(run.problems)
"""


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system")
@pytest.mark.parametrize("repetition", range(4))
def test_a_fork_while_the_first_facts_are_collected_leaves_no_import_half_done(storage, repetition):
    # In a new process most modules are not loaded yet, and the thread that collects facts loads them at this moment.
    done = subprocess.run([sys.executable, "-c", FRESH, str(storage.path)], capture_output=True, text=True, timeout=100)
    assert done.stdout.splitlines() == [str([[]] * 8), "[]"], done.stderr[-2000:]


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system")
@pytest.mark.parametrize("made", [True, False], ids=["a store", "an empty file"])
def test_a_first_write_that_waits_for_a_lock_keeps_no_fork_waiting(tmp_path, monkeypatch, made):
    monkeypatch.setenv("WATCHERML_PLAIN_IO", "1")  # where a lock keeps readers out as well
    if made:
        Storage(tmp_path / "s").create()
    path = tmp_path / "s" / "watcherml.db"
    path.parent.mkdir(exist_ok=True)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    waiting = threading.Thread(target=Storage(tmp_path / "s").create, daemon=True)
    waiting.start()
    try:
        for _ in range(3):
            time.sleep(0.4)
            began = time.monotonic()
            child = os.fork()
            if child == 0:
                os._exit(gate._broken_in == os.getpid())
            assert time.monotonic() - began < 1.9
            assert os.waitpid(child, 0)[1] == 0, "the child may use a store"
        assert waiting.is_alive()
    finally:
        other.execute("ROLLBACK")
        waiting.join(20)
    assert Storage(tmp_path / "s").list_runs() == []
