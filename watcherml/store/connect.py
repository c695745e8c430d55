"""One connection to SQLite: opening, waiting for others, and the two journal modes."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TypeVar

from watcherml.store.gate import outside
from watcherml.store.header import read_header
from watcherml.store.patience import Patience, Wait, seconds_left

# SQLite's own wait cannot be called off; a wait for a lock is many short ones.
_TURN_MILLISECONDS = 100
# Where the wait is a sleep of our own, so that a fork need not wait with it.
_SHORT_TURN_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 0.25
_PREPARE_SECONDS = 1.0  # the wait of a first write, with connections open: less than a fork waits for it
_ROOM_BYTES = 2**17  # what a write-ahead log and its shared memory need at least

T = TypeVar("T")


def open_file(path: Path, options: str, seconds: float | None = None) -> sqlite3.Connection:
    """Open a database file with the options of a SQLite URI, which have to name a ``mode`` other than ``rwc``.

    SQLite waits ``seconds`` for a lock, by default as long as this thread may.
    """
    uri = f"{path.as_uri()}?{options}"
    timeout = seconds_left() if seconds is None else seconds
    connection = sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None)
    connection.row_factory = sqlite3.Row
    return connection


def begin(connect: Callable[[float], sqlite3.Connection], prepare: Callable[[], None]) -> sqlite3.Connection:
    """Return a connection in a write transaction, waiting for other writers as long as this thread may.

    ``prepare`` sees to it that there is a store, ``connect`` opens a connection that waits so many seconds for a lock.
    Between two turns none is open, and the process may be forked.
    """

    def turn() -> sqlite3.Connection:
        with Patience(_PREPARE_SECONDS).used():
            prepare()
        connection = connect(_SHORT_TURN_SECONDS)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA busy_timeout = {round(1000 * seconds_left())}")
        except BaseException:
            connection.close()
            raise
        return connection

    return retry_busy(turn, step_out=True)


def begin_immediate(connection: sqlite3.Connection) -> None:
    """Start a write transaction, waiting for other writers as long as this thread may."""
    usual = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    connection.execute(f"PRAGMA busy_timeout = {min(usual, _TURN_MILLISECONDS)}")
    retry_busy(lambda: connection.execute("BEGIN IMMEDIATE"))
    connection.execute(f"PRAGMA busy_timeout = {usual}")


def retry_busy(call: Callable[[], T], seconds: float | None = None, *, step_out: bool = False) -> T:
    """Call again while SQLite says busy; its own timeout does not cover a change of the journal mode.

    Waits ``seconds`` at most, and never longer than this thread may wait for a lock. ``step_out`` lets the process be
    forked between two calls: for a ``call`` that leaves no connection open when it fails.
    """
    wait, pause = Wait(seconds), 0.005
    while True:
        try:
            done = call()
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            if wait.over:
                wait.end(answered=False)
                raise
        else:
            wait.end(answered=True)
            return done
        with outside() if step_out else nullcontext():
            time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


def is_busy(error: sqlite3.OperationalError) -> bool:
    """Tell whether another connection is in the way."""
    return "locked" in str(error) or "busy" in str(error)


def enter_wal(path: Path, in_use: Callable[[sqlite3.Connection], bool]) -> str:
    """Set the write-ahead log, or the rollback journal where that fails; returns why it failed, "" if it did not.

    A store that ``in_use`` calls used keeps the journal it has. Raises ``sqlite3.OperationalError`` where the store is
    busy for too long or the disk is full.
    """
    with closing(open_file(path, "mode=rw")) as connection:
        try:
            if _journal_mode(connection) != "wal" and in_use(connection):
                return ""
            mode = retry_busy(lambda: _journal_mode(connection, "wal"))
            if mode == "wal":
                _try_shared_memory(connection)
                return ""
            refused = f"SQLite keeps the journal mode {mode} here"
        except sqlite3.OperationalError as error:
            if is_busy(error) or is_full(error, path):
                raise
            refused = f"SQLite cannot use its write-ahead log here ({error})"
    leave_wal(path, seconds_left(), lambda _: False)
    return refused


def _try_shared_memory(connection: sqlite3.Connection) -> None:
    # Only a write shows whether shared memory is to be had here.
    connection.execute(f"PRAGMA busy_timeout = {_TURN_MILLISECONDS}")
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        if not is_busy(error):  # the lock that somebody holds lies in that memory
            raise


def leave_wal(path: Path, seconds: float, in_use: Callable[[sqlite3.Connection], bool]) -> None:
    """Set the rollback journal, unless ``in_use`` calls the store used.

    Raises ``sqlite3.OperationalError`` if others are busy with the log after ``seconds``.
    """
    header = read_header(path)
    if header is not None and not header.wal:
        return
    with closing(open_file(path, "mode=rw")) as connection:
        # In exclusive mode the log needs no shared memory, so that it can be left even where there is none.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute(f"PRAGMA busy_timeout = {_TURN_MILLISECONDS}")
        if not retry_busy(lambda: in_use(connection), seconds):
            retry_busy(lambda: _journal_mode(connection, "delete"), seconds)


def _journal_mode(connection: sqlite3.Connection, wanted: str = "") -> str:
    found = str(connection.execute("PRAGMA journal_mode").fetchone()[0])
    if found == wanted or not wanted:
        return found
    return str(connection.execute(f"PRAGMA journal_mode = {wanted}").fetchone()[0])


def is_full(error: sqlite3.DatabaseError, path: Path) -> bool:
    """Tell whether the disk has no room; such an error may bear another name."""
    # Where it is the shared memory that finds no room, SQLite speaks of an I/O error.
    if "full" in str(error):
        return True
    import shutil

    try:
        return shutil.disk_usage(path.parent).free < _ROOM_BYTES
    except OSError:  # the folder is gone
        return False
