"""Opening the SQLite file: location, WAL, retries, and refusals that say what the file is.

Connections are short-lived: one a block. That survives forks and threads without shared state, and the
hot path (metrics) does not come through here.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from watcherml.errors import NotAStore, StoreError
from watcherml.platform import make_private_dir
from watcherml.store.migrate import ensure_schema, is_empty, schema_version

FILE_NAME = "watcherml.db"
ENVIRONMENT = "WATCHERML_DIR"
# Set to 1, it forces what network file systems need.
PLAIN_IO = "WATCHERML_PLAIN_IO"
BUSY_TIMEOUT_SECONDS = 30.0

T = TypeVar("T")


def locate(explicit: str | os.PathLike[str] | None = None) -> Path:
    """Return the store's folder: the explicit path, else WATCHERML_DIR, else ``./.watcherml`` right now."""
    if explicit is not None and str(explicit) != "":
        return Path(explicit).expanduser().absolute()
    named = os.environ.get(ENVIRONMENT, "")
    return Path(named).expanduser().absolute() if named else Path.cwd() / ".watcherml"


class Database:
    """One store folder. Creating the object touches nothing; the first write makes the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / FILE_NAME
        self._ready_in = 0  # the pid that has checked the schema

    @property
    def exists(self) -> bool:
        """Whether there is a database file."""
        return self.path.is_file()

    @property
    def plain(self) -> bool:
        """Whether files here are only appended to and renamed: no write-ahead log, no mapped memory."""
        return os.environ.get(PLAIN_IO, "") == "1"

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection that cannot write; nothing is created.

        Raises ``StoreError`` where there is no store, ``NotAStore`` or ``NewerStore`` for other files.
        """
        if not self.exists:
            raise StoreError(
                "no WatcherML store",
                expected=f"a file {FILE_NAME} in {self.folder}",
                remedy="Record a run first, run `watcher init`, or point --data-dir or WATCHERML_DIR at a store.",
            )
        connection = self._connect_read_only()
        try:
            schema_version(connection, self.path)
            yield connection
        except sqlite3.DatabaseError as error:
            raise _explain(error, self.path) from error
        finally:
            connection.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection inside one BEGIN IMMEDIATE transaction, committed if the block ends well.

        Raises ``StoreError`` with the system's reason if the folder or file cannot be written.
        """
        try:
            self._prepare()
            connection = self._connect()
        except OSError as error:
            raise StoreError("cannot write the store", got=str(error), remedy=_WRITE_REMEDY) from error
        except sqlite3.DatabaseError as error:
            raise _explain(error, self.path) from error
        try:
            begin_immediate(connection)
            yield connection
            connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            _roll_back(connection)
            raise _explain(error, self.path) from error
        except BaseException:
            _roll_back(connection)
            raise
        finally:
            connection.close()

    def _prepare(self) -> None:
        if self._ready_in == os.getpid() and self.exists:
            return
        make_private_dir(self.folder)
        ignore = self.folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
        if not self.exists:
            # Made by us with its permissions before SQLite opens it, so that it is never readable by others.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        self._refuse_foreign()
        connection = self._connect()
        try:
            ensure_schema(connection, self.path, begin_immediate)
        finally:
            connection.close()
        self._ready_in = os.getpid()

    def _refuse_foreign(self) -> None:
        # Switching to WAL writes to the file, so another program's database is recognised before that.
        if self.path.stat().st_size:
            connection = self._connect_read_only()
            try:
                if not is_empty(connection):
                    schema_version(connection, self.path)
            finally:
                connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None)
        try:
            connection.row_factory = sqlite3.Row
            retry_busy(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect_read_only(self) -> sqlite3.Connection:
        # On read-only media SQLite cannot make the -shm file that WAL needs; `immutable` reads without it.
        options = "mode=ro" if os.access(self.folder, os.W_OK) else "mode=ro&immutable=1"
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?{options}", uri=True, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None
        )
        connection.row_factory = sqlite3.Row
        return connection


def begin_immediate(connection: sqlite3.Connection) -> None:
    """Start a write transaction, waiting for other writers."""
    retry_busy(lambda: connection.execute("BEGIN IMMEDIATE"))


def retry_busy(call: Callable[[], T], seconds: float = BUSY_TIMEOUT_SECONDS) -> T:
    """Call again while SQLite says busy; its own timeout does not cover switching to WAL."""
    deadline = time.monotonic() + seconds
    pause = 0.005
    while True:
        try:
            return call()
        except sqlite3.OperationalError as error:
            busy = "locked" in str(error) or "busy" in str(error)
            if not busy or time.monotonic() > deadline:
                raise
        time.sleep(pause)
        pause = min(pause * 2, 0.25)


_WRITE_REMEDY = "Check the folder's permissions and free space, or choose another with WATCHERML_DIR."


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        try:
            connection.execute("ROLLBACK")
        except sqlite3.DatabaseError:
            pass  # the first error is the one to report; closing rolls back too


def _explain(error: sqlite3.DatabaseError, path: Path) -> StoreError:
    text = str(error)
    if "not a database" in text or "malformed" in text:
        return NotAStore(
            f"{path} cannot be read as a store",
            expected="a SQLite database written by WatcherML",
            got=text,
            remedy="Move the file away to start a new store, or restore it from a copy.",
        )
    return StoreError("the store refused an operation", got=text, remedy=_WRITE_REMEDY)
