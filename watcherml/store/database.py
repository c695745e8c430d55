"""Opening the SQLite file: location, journal mode, retries, and refusals that say what the file is.

Connections are short-lived: one a block. That survives forks and threads without shared state, and the
hot path (metrics) does not come through here.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from watcherml.errors import NotAStore, StoreError
from watcherml.platform import expanded, make_private_dir
from watcherml.store import gate
from watcherml.store.connect import begin, begin_immediate, enter_wal, is_busy, is_full, leave_wal, open_file
from watcherml.store.filesystem import Place, place_of
from watcherml.store.header import Header, beside, read_header, what_it_is
from watcherml.store.kept import Kept
from watcherml.store.migrate import APPLICATION_ID, SCHEMA_VERSION, ensure_schema, is_empty, schema_version

if TYPE_CHECKING:
    from watcherml.store.copies import Copy

FILE_NAME = "watcherml.db"
# The file of WatcherML 0.1, which is read and never written.
OLDER_FILE_NAME = "watcher.db"
ENVIRONMENT = "WATCHERML_DIR"
# Set to 1, it forces what network file systems need.
PLAIN_IO = "WATCHERML_PLAIN_IO"
# Another process may be making the schema at this moment.
_EMPTY_WAIT_SECONDS = 1.0
_TO_ROLLBACK_SECONDS = 2.0
# SQLite quotes a damaged schema in its message, and where that is no UTF-8 Python cannot read the message.
_DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)
# Who reads waits so long for somebody's lock, then takes a copy and stays with it for a while.
_READ_WAIT_MILLISECONDS = 1_000
_COPY_SECONDS = 5.0


def locate(explicit: str | os.PathLike[str] | None = None) -> Path:
    """Return the store's folder: the explicit path, else WATCHERML_DIR, else ``./.watcherml``. Nowhere: StoreError."""
    named = "" if explicit is None or str(explicit) == "" else explicit
    path = expanded(named or os.environ.get(ENVIRONMENT, "") or ".watcherml")
    try:
        return path.absolute()
    except FileNotFoundError:
        raise StoreError(f"{path} is nowhere: the working directory was deleted", remedy=_NOWHERE_REMEDY) from None


class Database:
    """One store folder. Creating the object touches nothing; the first write makes the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / FILE_NAME
        self.older_path = folder / OLDER_FILE_NAME
        self._ready_in = 0  # the pid that has checked the schema
        self._place: Place | None = None
        self._wal_refused = ""
        self._copies: dict[Path, Copy] = {}
        self.kept = Kept()
        self._copy_until = 0.0  # of the monotonic clock

    @property
    def exists(self) -> bool:
        """Whether something lies where a database belongs, be it a store of 0.1, no store, or hidden from this user."""
        return os.path.lexists(self.path) or self.is_older or self._hidden()

    @property
    def is_older(self) -> bool:
        """Whether the folder holds a store of WatcherML 0.1 and none of ours."""
        try:
            return not os.path.lexists(self.path) and self.older_path.is_file()
        except OSError:  # a folder that this user may not look into
            return False

    @property
    def spool_folder(self) -> Path:
        """Where runs keep their journals. For a store of 0.1 a place where nothing can be made: below a file."""
        return (self.older_path if self.is_older else self.folder) / "spool"

    @property
    def writable(self) -> bool:
        """Whether there is a store that can be written here and now, without moving its schema forward first."""
        header = None if self.is_older or not self._permitted() else self._header()
        return header is not None and header.schema in (0, SCHEMA_VERSION)

    @property
    def outdated(self) -> bool:
        """Whether it is a store of ours with an older schema, which the next write moves forward."""
        header = self._header()
        return header is not None and header.application_id == APPLICATION_ID and 0 < header.schema < SCHEMA_VERSION

    @property
    def plain(self) -> bool:
        """Whether files here are only appended to and renamed: no write-ahead log, no mapped memory."""
        return bool(self.why_plain)

    @property
    def why_plain(self) -> str:
        """Why files here are only appended to, in a few words; empty where the usual ways are safe."""
        if os.environ.get(PLAIN_IO, "") == "1":
            return f"{PLAIN_IO}=1 is set"
        if self._place is None:
            self._place = place_of(self.folder)
        if self._place.remote:
            return f"{self._place.mount} is a file system of type {self._place.type}"
        return self._wal_refused

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection that cannot write; nothing is created, and a read-only folder is left as it is.

        Raises ``StoreError`` where there is no store, ``NotAStore`` or ``NewerStore`` for other files.
        """
        self._require()
        try:
            with gate.inside(), self._reader() as connection:
                yield connection
        except OSError as error:
            raise StoreError("cannot read the store", got=str(error), remedy=_READ_REMEDY) from error
        except _DAMAGE as error:
            raise explain(error, self.path) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection inside one BEGIN IMMEDIATE transaction, committed if the block ends well.

        Raises ``StoreError`` with the system's reason if the folder or file cannot be written, or holds a store of 0.1.
        """
        if self.is_older:
            raise StoreError(
                f"{self.folder} holds a store of WatcherML 0.1, which is only read",
                expected=f"a folder without {OLDER_FILE_NAME}",
                remedy="Record into another folder: --data-dir or WATCHERML_DIR. This one stays readable.",
            )
        with gate.inside(), self._transaction() as connection:
            yield connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = begin(self._connect, self._prepare)
        except OSError as error:
            raise StoreError("cannot write the store", got=str(error), remedy=_WRITE_REMEDY) from error
        except _DAMAGE as error:
            raise explain(error, self.path) from error
        try:
            yield connection
            connection.execute("COMMIT")
        except _DAMAGE as error:
            _roll_back(connection)
            raise explain(error, self.path) from error
        except BaseException:
            _roll_back(connection)
            raise
        finally:
            connection.close()

    # -- reading ----------------------------------------------------------------------------------------------

    def _require(self) -> None:
        hidden = self._hidden()
        if hidden or not self.exists:
            raise StoreError(
                f"{self.folder} cannot be looked into" if hidden else "no WatcherML store",
                expected=f"a file {FILE_NAME} in {self.folder}",
                got="a folder that this user may not look into" if hidden else "",
                remedy=_READ_REMEDY if hidden else _NO_STORE_REMEDY,
            )

    def _hidden(self) -> bool:
        try:
            return self.folder.is_dir() and not os.access(self.folder, os.X_OK)
        except OSError:
            return True

    def read_copy(self) -> None:
        """Read through a copy, with all journals in it, for a moment: somebody keeps the file itself locked."""
        self._copy_until = time.monotonic() + _COPY_SECONDS

    @property
    def reads_copy(self) -> bool:
        """Whether reading goes through a copy at this moment, because the file is locked or its disk is full."""
        return time.monotonic() < self._copy_until

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        connection = None
        if not self.reads_copy and not self._needs_copy():
            connection = self._open_reading()
        if connection is None:
            with self._copy().reading() as copy:
                yield copy
        else:
            with closing(connection):
                yield connection

    def _open_reading(self) -> sqlite3.Connection | None:
        """Return a connection, None where a copy has to do: for another schema, a lock, or a disk without room."""
        connection = None
        try:
            connection = self._connect_reading()
            usual = connection.execute("PRAGMA busy_timeout").fetchone()[0]
            connection.execute(f"PRAGMA busy_timeout = {min(usual, _READ_WAIT_MILLISECONDS)}")
            if self._version_when_made(connection) == SCHEMA_VERSION:
                connection.execute(f"PRAGMA busy_timeout = {usual}")
                found, connection = connection, None
                return found
        except sqlite3.OperationalError as error:
            # A log needs a file of its own even to be read, which a full disk has no room for.
            if not (is_busy(error) or any(word in str(error) for word in ("full", "unable to open", "I/O error"))):
                raise
            self.read_copy()
        finally:
            if connection is not None:
                connection.close()
        return None

    def _needs_copy(self) -> bool:
        """Tell whether opening the file as it lies there would write beside it, or not show everything."""
        if self.is_older:
            return True
        header = self._header()
        if header is None:
            self._wait_until_made()
            return False
        if self.outdated:
            return True
        if self._permitted():
            return header.wal and self.plain  # a store that was made elsewhere; its log may not work here
        from watcherml.store.copies import pending_runs

        return bool(beside(self.path) or pending_runs(self.spool_folder))

    def _header(self) -> Header | None:
        try:
            return None if self.path.is_dir() else read_header(self.path)
        except OSError:
            return None

    def _wait_until_made(self) -> None:
        deadline = time.monotonic() + _EMPTY_WAIT_SECONDS
        while self.path.is_file() and not self.path.stat().st_size:
            if time.monotonic() > deadline:
                raise self._empty()
            time.sleep(0.01)
        if self.path.is_dir() or read_header(self.path) is None:
            raise _not_a_store(self.path, what_it_is(self.path))

    def _empty(self) -> StoreError:
        return StoreError(
            f"{self.path} is empty",
            expected="a database made by WatcherML",
            got=what_it_is(self.path) if not self.path.stat().st_size else "a SQLite database without tables",
            remedy="If a store was here, restore it from a copy; otherwise `watcher init` makes a new one here.",
        )

    def _version_when_made(self, connection: sqlite3.Connection) -> int:
        deadline = time.monotonic() + _EMPTY_WAIT_SECONDS
        while not connection.execute("PRAGMA user_version").fetchone()[0] and is_empty(connection):
            if time.monotonic() > deadline:
                raise self._empty()
            time.sleep(0.01)
        return schema_version(connection, self.path)

    def _copy(self) -> Copy:
        from watcherml.store.copies import Copy, current_copy

        path, spool = (self.older_path if self.is_older else self.path), self.spool_folder
        if path not in self._copies:
            if path == self.older_path:
                from watcherml.store.older import older_copy

                self._copies[path] = Copy(path, spool, lambda: older_copy(path))
            else:
                self._copies[path] = Copy(path, spool, lambda: current_copy(path, spool))
        return self._copies[path]

    def _connect_reading(self) -> sqlite3.Connection:
        header = read_header(self.path)
        if not self._permitted():
            # Nothing lies beside the database, see _needs_copy, and SQLite could not make what WAL needs.
            return open_file(self.path, "mode=ro&immutable=1" if header is not None and header.wal else "mode=ro")
        # Ours not with mode=ro: where a writer was killed, SQLite has to roll its journal back before anybody can read.
        ours = header is not None and header.application_id == APPLICATION_ID
        connection = open_file(self.path, "mode=rw" if ours else "mode=ro")
        connection.execute("PRAGMA query_only = ON")
        return connection

    def _permitted(self) -> bool:
        return os.access(self.folder, os.W_OK | os.X_OK) and os.access(self.path, os.W_OK)

    # -- writing ----------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        if self._ready_in == os.getpid() and self.path.exists():
            return
        ignore = self.folder / ".gitignore"
        # Only in a folder that is ours: in a project's root it would hide the project. A full disk leaves it empty.
        ours = self.folder.name == ".watcherml" or not self.folder.is_dir() or _holds_only_ours(self.folder)
        make_private_dir(self.folder)
        if ours and not ignore.exists():
            ignore.touch(0o600)
        if ours and ignore.exists() and not ignore.stat().st_size:
            ignore.write_text("*\n")
        if self.path.exists() and not self.path.is_file():  # a folder, or a pipe that nobody writes to
            raise _not_a_store(self.path, what_it_is(self.path))
        if self.path.exists() and not self._permitted():
            # SQLite would open it for reading, and only the first statement that writes would fail.
            raise PermissionError(errno.EROFS, "it is read-only for this user", str(self.path))
        if not self.path.exists():
            # Made by us with its permissions before SQLite opens it, so that it is never readable by others.
            gate.let_go(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        self._refuse_foreign()
        self._choose_journal()
        with closing(self._connect()) as connection:
            ensure_schema(connection, self.path, begin_immediate)
        self._ready_in = os.getpid()

    def _refuse_foreign(self) -> None:
        # Choosing the journal writes to the file, so another program's database is recognised before that.
        if not self.path.stat().st_size:
            return
        header = read_header(self.path)
        if header is None:
            raise _not_a_store(self.path, what_it_is(self.path))
        if header.application_id != APPLICATION_ID or header.schema > SCHEMA_VERSION:
            with closing(open_file(self.path, "mode=ro")) as connection:
                if not is_empty(connection):
                    schema_version(connection, self.path)

    def _choose_journal(self) -> None:
        """Set the journal mode that suits the file system; where others use the store or keep it busy, theirs stays."""
        from watcherml.store.endings import in_use

        self._wal_refused = ""
        try:
            if self.plain:
                leave_wal(self.path, _TO_ROLLBACK_SECONDS, in_use)
            else:
                self._wal_refused = enter_wal(self.path, in_use)
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise

    def _connect(self, seconds: float | None = None) -> sqlite3.Connection:
        connection = open_file(self.path, "mode=rw", seconds)
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA synchronous = {'FULL' if self.plain else 'NORMAL'}")
        except BaseException:
            connection.close()
            raise
        return connection


def _holds_only_ours(folder: Path) -> bool:
    names = {one.name for one in folder.iterdir() if not one.name.startswith(FILE_NAME)}
    return bool(names) and names <= {"spool", "ranks", ".gitignore"}  # journals and notes of ranks may come first


def explain(error: sqlite3.DatabaseError | UnicodeDecodeError, path: Path) -> StoreError:
    """Return the error that tells a person what SQLite met and what to do about it."""
    text = str(error)
    if isinstance(error, UnicodeDecodeError) or any(word in text for word in _DAMAGED):
        return _not_a_store(path, f"{what_it_is(path)}; SQLite says: {text}")
    if "full" in text or ("I/O error" in text and is_full(error, path)):
        return StoreError("the store's disk is full", got=text, remedy="Free some space; recording goes on by itself.")
    return StoreError("the store refused an operation", got=text, remedy=_WRITE_REMEDY)


_DAMAGED = ("not a database", "malformed", "not decode", "no such table", "no such column")
_READ_REMEDY = "Check the folder's permissions, or choose another with --data-dir or WATCHERML_DIR."
_NOWHERE_REMEDY = "Change to a folder that is there, or name the store by an absolute path."
_NO_STORE_REMEDY = "Record a run first, run `watcher init`, or point --data-dir or WATCHERML_DIR at a store."
_WRITE_REMEDY = "Check the folder's permissions and free space, or choose another with WATCHERML_DIR."


def _not_a_store(path: Path, got: str) -> NotAStore:
    return NotAStore(
        f"{path} cannot be read as a store",
        expected="a SQLite database written by WatcherML",
        got=got,
        remedy="It was left alone. Move it away to start a new store, or restore it from a copy.",
    )


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        try:
            connection.execute("ROLLBACK")
        except sqlite3.DatabaseError:
            pass  # the first error is the one to report; closing rolls back too
