"""Reading a store that must not be touched: through a copy in memory that is brought up to date.

A read-only folder may hold an older schema, a write-ahead log that nobody has folded into the database, or metric
points that still lie in their spool. A copy can be migrated and folded; the folder stays as it is.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from watcherml.store import aside, journal
from watcherml.store.connect import is_busy
from watcherml.store.gate import opened
from watcherml.store.header import beside, read_header
from watcherml.store.migrate import schema_version, upgrade

Signature = tuple[tuple[str, int, int], ...]
_ATTEMPT_SECONDS = 5.0
_PAUSE_SECONDS = 0.025
_TICK_NANOSECONDS = 20_000_000
# Points in mapped memory reach a file without changing its time of modification.
_SPOOL_AGE_SECONDS = 2.0
_SHARE_OF_TIME = 10  # a copy is used for at least so many times as long as it took to make


class Copy:
    """One copy, made on first use and again when the original has changed. Readers take turns."""

    def __init__(self, path: Path, spool_folder: Path, make: Callable[[], sqlite3.Connection]) -> None:
        self._path, self._spool, self._make = path, spool_folder, make
        self._lock = threading.RLock()
        self._owner = 0  # a forked child makes its own
        self._connection: sqlite3.Connection | None = None
        self._signature: Signature = ()
        self._expires = 0.0

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield the copy; it refuses to be written."""
        if self._owner != os.getpid():
            self._lock, self._owner, self._connection = threading.RLock(), os.getpid(), None
        with self._lock:
            now = signature(self._path, self._spool)
            if self._connection is None or now != self._signature or time.monotonic() > self._expires:
                self._remake(now)
            assert self._connection is not None
            yield self._connection

    def _remake(self, now: Signature) -> None:
        started = time.monotonic()
        connection = self._make()
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA query_only = ON")
        took = time.monotonic() - started
        age = max(_SPOOL_AGE_SECONDS, _SHARE_OF_TIME * took) if pending_runs(self._spool) else float("inf")
        self._connection, self._signature, self._expires = connection, now, time.monotonic() + age


def signature(path: Path, spool_folder: Path) -> Signature:
    """Return what tells a changed store from an unchanged one: names, sizes and times of its files."""
    found = []
    for one in (path, *beside(path), *_spool_files(spool_folder)):
        try:
            state = one.stat()
        except OSError:
            continue
        found.append((one.name, state.st_size, state.st_mtime_ns))
    return tuple(found)


def pending_runs(spool_folder: Path) -> list[str]:
    """Return the ids of runs that have spool files."""
    return sorted({run_id for one in _spool_files(spool_folder) if (run_id := journal.run_of(one)) is not None})


def current_copy(path: Path, spool_folder: Path) -> sqlite3.Connection:
    """Return a copy in memory with the current schema and all spooled points.

    Raises ``NotAStore`` or ``NewerStore`` as opening the file itself does, OSError or ``sqlite3.DatabaseError``.
    """
    copy = memory_copy(path)
    try:
        version = schema_version(copy, path)
        copy.execute("BEGIN")
        upgrade(copy, version)
        _take_endings(copy, spool_folder)
        known = {str(row[0]) for row in copy.execute("SELECT run_id FROM runs")}
        for run_id in pending_runs(spool_folder):
            if run_id in known:
                _fold(copy, spool_folder, run_id)
        copy.execute("COMMIT")
    except BaseException:
        copy.close()
        raise
    return copy


def _take_endings(copy: sqlite3.Connection, spool_folder: Path) -> None:
    for path in aside.endings(spool_folder):
        document = aside.read(path)
        if document is None:
            continue
        copy.execute("SAVEPOINT ending")
        try:
            aside.take(copy, path, document)
            aside.close(copy, document["run_id"], **document["end"])
        except aside.UNFIT:
            copy.execute("ROLLBACK TO ending")  # one that does not fit must not hide the others
        copy.execute("RELEASE ending")


def _fold(copy: sqlite3.Connection, spool_folder: Path, run_id: str) -> None:
    # final: a record that is not finished must not hide those after it, and this copy is not kept.
    journal.fold(copy, spool_folder, run_id, final=frozenset(journal.files(spool_folder, run_id)))


def memory_copy(path: Path) -> sqlite3.Connection:
    """Copy again while somebody writes: the parts of a moving store do not fit together."""
    deadline = time.monotonic() + _ATTEMPT_SECONDS
    while True:
        before = _state(path)
        last = time.monotonic() > deadline
        try:
            copy = _copy(path)
        except (sqlite3.DatabaseError, FileNotFoundError):
            # A log that is gone is a change too.
            if last or before == _state(path):
                raise
        else:
            if last or (before == _state(path) and not _just_written(before)):
                return copy
            copy.close()
        time.sleep(_PAUSE_SECONDS)


def _state(path: Path) -> Signature:
    return signature(path, path / "no journals")


def _just_written(state: Signature) -> bool:
    # A second change within one tick of the file system's clock would not show.
    return any(abs(time.time_ns() - changed) < _TICK_NANOSECONDS for _, _, changed in state)


def _copy(path: Path) -> sqlite3.Connection:
    logs = beside(path)
    if not logs:
        header = read_header(path)
        # In WAL mode even a read-only connection makes files beside the database, unless told not to look for any.
        options = "mode=ro&immutable=1" if header is not None and header.wal else "mode=ro"
        try:
            with closing(sqlite3.connect(f"{path.as_uri()}?{options}", uri=True, timeout=_PAUSE_SECONDS)) as source:
                return _to_memory(source)
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
    with tempfile.TemporaryDirectory(prefix="watcherml-read-") as folder:
        for one in (path, *logs):
            with opened(one) as source_file, (Path(folder) / one.name).open("wb") as target:
                shutil.copyfileobj(source_file, target)
        with closing(sqlite3.connect(Path(folder) / path.name)) as source:
            return _to_memory(source)


def _to_memory(source: sqlite3.Connection) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    try:
        # A backup waits for ever while somebody else holds the lock; one in a transaction has it.
        source.execute("BEGIN")
        source.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        source.backup(copy)
    except BaseException:
        copy.close()
        raise
    return copy


def _spool_files(folder: Path) -> list[Path]:
    return journal.files(folder, None, ".points", ".jsonl", aside.ENDING)
