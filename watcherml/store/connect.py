"""One connection to SQLite: opening, waiting for others, and the two journal modes."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from watcherml.store.header import read_header

BUSY_TIMEOUT_SECONDS = 30.0
_ROOM_BYTES = 2**17  # what a write-ahead log and its shared memory need at least

T = TypeVar("T")


def open_file(path: Path, options: str) -> sqlite3.Connection:
    """Open a database file with the options of a SQLite URI, which have to name a ``mode`` other than ``rwc``."""
    uri = f"{path.as_uri()}?{options}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None)
    connection.row_factory = sqlite3.Row
    return connection


def begin_immediate(connection: sqlite3.Connection) -> None:
    """Start a write transaction, waiting for other writers."""
    retry_busy(lambda: connection.execute("BEGIN IMMEDIATE"))


def retry_busy(call: Callable[[], T], seconds: float = BUSY_TIMEOUT_SECONDS) -> T:
    """Call again while SQLite says busy; its own timeout does not cover a change of the journal mode."""
    deadline = time.monotonic() + seconds
    pause = 0.005
    while True:
        try:
            return call()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
        time.sleep(pause)
        pause = min(pause * 2, 0.25)


def is_busy(error: sqlite3.OperationalError) -> bool:
    """Tell whether another connection is in the way."""
    return "locked" in str(error) or "busy" in str(error)


def enter_wal(path: Path) -> str:
    """Set the write-ahead log, or the rollback journal where that fails; returns why it failed, "" if it did not.

    Raises ``sqlite3.OperationalError`` where the store is busy for too long or the disk is full.
    """
    with closing(open_file(path, "mode=rw")) as connection:
        try:
            mode = retry_busy(lambda: _journal_mode(connection, "wal"))
            if mode == "wal":
                begin_immediate(connection)  # only a write shows whether shared memory is to be had here
                connection.execute("ROLLBACK")
                return ""
            refused = f"SQLite keeps the journal mode {mode} here"
        except sqlite3.OperationalError as error:
            if is_busy(error) or _is_full(error, path):
                raise
            refused = f"SQLite cannot use its write-ahead log here ({error})"
    leave_wal(path, BUSY_TIMEOUT_SECONDS)
    return refused


def leave_wal(path: Path, seconds: float) -> None:
    """Set the rollback journal; ``sqlite3.OperationalError`` if others are busy with the log after ``seconds``."""
    header = read_header(path)
    if header is not None and not header.wal:
        return
    with closing(open_file(path, "mode=rw")) as connection:
        # In exclusive mode the log needs no shared memory, so that it can be left even where there is none.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
        retry_busy(lambda: _journal_mode(connection, "delete"), seconds)


def _journal_mode(connection: sqlite3.Connection, wanted: str) -> str:
    found = str(connection.execute("PRAGMA journal_mode").fetchone()[0])
    return found if found == wanted else str(connection.execute(f"PRAGMA journal_mode = {wanted}").fetchone()[0])


def _is_full(error: sqlite3.OperationalError, path: Path) -> bool:
    # Where it is the shared memory that finds no room, SQLite speaks of an I/O error.
    if "full" in str(error):
        return True
    import shutil

    return shutil.disk_usage(path.parent).free < _ROOM_BYTES
