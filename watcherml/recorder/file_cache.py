"""Remembers the hashes of files between processes; whatever goes wrong here means no memory, never an error."""

from __future__ import annotations

import os
import sqlite3
import stat
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from watcherml.errors import StoreError
from watcherml.recorder.file_tree import Entry, Hashed
from watcherml.store.gate import inside, let_go

# A file as young as its entry may change again within one tick of the file system's clock, and look the same.
RACY_NS = 2_000_000_000
MAX_CACHE_BYTES = 512_000_000
_BUSY_SECONDS = 0.25
_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS folders (folder_id INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS files (
    folder_id INTEGER NOT NULL, name BLOB NOT NULL, stamp BLOB NOT NULL, sha256 BLOB NOT NULL,
    PRIMARY KEY (folder_id, name)
) WITHOUT ROWID;
"""
_STAMP = struct.Struct("<qqqQ")


class Known(NamedTuple):
    """What is remembered of a file: ``stamp`` is its size, times and inode at the time."""

    stamp: bytes
    sha256: bytes


def cache_file() -> Path:
    """Return the place of the cache in the user's cache folder."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    if Path(given).is_absolute():
        base = Path(given)
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return base / "watcherml" / "fingerprints.db"


def stamp(entry: Entry) -> bytes:
    """Return what a file must still look like for its remembered hash to count."""
    return _STAMP.pack(entry.size, entry.mtime_ns, entry.ctime_ns, entry.inode & 0xFFFFFFFFFFFFFFFF)


class TreeCache:
    """The remembered hashes. ``began_ns`` is a time before the first file was looked at."""

    def __init__(self, root: str, began_ns: int) -> None:
        self._began_ns = began_ns
        self._connection: sqlite3.Connection | None = None
        try:
            path = cache_file()
            if not _is_inside(path, root):
                with inside():
                    self._connection = _open(path)
        except (OSError, sqlite3.Error, RuntimeError, StoreError):  # RuntimeError: there is no home folder
            self._connection = None

    def known(self, folder: str) -> dict[bytes, Known]:
        """Return what is remembered of the files in a folder, by name."""
        if self._connection is None:
            return {}
        try:
            with inside():
                rows = self._connection.execute(
                    "SELECT name, stamp, sha256 FROM files JOIN folders USING (folder_id) WHERE path = ?",
                    (os.fsencode(folder),),
                ).fetchall()
        except sqlite3.Error as error:
            self._give_up(error)
            return {}
        return {name: Known(mark, content) for name, mark, content in rows if len(content) == 32}

    def save(self, rows: Iterable[tuple[Entry, Hashed]]) -> None:
        """Remember hashes of files that stood still and are old enough to be told from a later change."""
        if self._connection is None:
            return
        kept = [
            (os.fsencode(entry.folder), os.fsencode(entry.name), stamp(entry), hashed.sha256)
            for entry, hashed in rows
            if hashed.steady and self._began_ns - max(entry.mtime_ns, entry.ctime_ns) > RACY_NS
        ]
        if not kept:
            return
        try:
            with inside(), self._connection as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(
                    "INSERT OR IGNORE INTO folders (path) VALUES (?)", {(folder,) for folder, *_ in kept}
                )
                ids = {
                    folder: connection.execute("SELECT folder_id FROM folders WHERE path = ?", (folder,)).fetchone()[0]
                    for folder in {folder for folder, *_ in kept}
                }
                connection.executemany(
                    "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", ((ids[row[0]], *row[1:]) for row in kept)
                )
        except sqlite3.Error as error:
            self._give_up(error)

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            with suppress(StoreError), inside():
                self._connection.close()
            self._connection = None

    def _give_up(self, error: sqlite3.Error) -> None:
        self.close()
        if _is_damage(error):
            _discard(cache_file())


def _is_inside(path: Path, root: str) -> bool:
    """Tell whether the cache would lie in the data; writing it would change what is hashed."""
    return Path(os.path.realpath(path)).is_relative_to(root)


def _open(path: Path) -> sqlite3.Connection | None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        status = os.fstat(handle)
    finally:
        let_go(handle)
    if os.name != "nt" and (status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o022):
        return None  # somebody else could put hashes into it
    if status.st_size > MAX_CACHE_BYTES:
        _discard(path)
        return _open(path)
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
        elif version != _VERSION:
            connection.close()
            return None
    except sqlite3.Error as error:
        connection.close()
        if _is_damage(error):
            _discard(path)
        return None
    return connection


def _is_damage(error: sqlite3.Error) -> bool:
    """Tell a broken file from one that is locked or cannot be written."""
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)


def _discard(path: Path) -> None:
    for name in (path, path.with_name(path.name + "-journal")):
        try:
            name.unlink(missing_ok=True)
        except OSError:
            pass
