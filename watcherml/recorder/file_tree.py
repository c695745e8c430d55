"""Lists and hashes the files under a folder: which files count, what a link counts as, and how content is read."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from watcherml.errors import InvalidValue
from watcherml.recorder.progress import Progress

if TYPE_CHECKING:
    from concurrent.futures import Future

EXCLUDED = frozenset({".git", ".watcherml"})
MAX_FOLLOWED_FOLDERS = 10_000
_CHUNK_BYTES = 1 << 20
# Up to here one read takes the whole file; many such files make one task, since a task costs as much as a file.
_SMALL_BYTES = 1 << 18
_BATCH_FILES = 128
_BATCH_BYTES = 16 << 20
_POLL_SECONDS = 0.2
_SAVE_SECONDS = 30.0


class Entry(NamedTuple):
    """A file that counts, as it was when it was listed; ``link`` is the text of a link that is not followed."""

    relative: bytes
    folder: str
    name: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    link: bytes | None = None

    @property
    def path(self) -> str:
        """The path to open."""
        return self.folder + os.sep + self.name if self.folder else self.name


@dataclass
class Tree:
    """What is under a folder; names are relative to it, with ``/`` on every system.

    The entries of one folder stand together, in no order.
    """

    entries: list[Entry] = field(default_factory=list)
    links_outside: list[bytes] = field(default_factory=list)
    links_broken: list[bytes] = field(default_factory=list)
    links_circular: list[bytes] = field(default_factory=list)
    special: list[bytes] = field(default_factory=list)  # sockets, FIFOs, devices


@dataclass(frozen=True)
class _Folder:
    path: str
    relative: bytes  # "" for the root, else with a final "/"
    ancestors: tuple[tuple[int, int], ...]  # device and inode of each folder on the way, this one included


def walk(root: str) -> Tree:
    """List the files under a folder whose path has no links.

    Links that stay inside are followed; links that leave the folder or lead nowhere are entries of their own.
    Raises ``InvalidValue`` for a folder that cannot be read and for more than ``MAX_FOLLOWED_FOLDERS`` folders
    reached through links.
    """
    tree = Tree()
    followed = 0
    top = Path(root).stat()
    waiting = [_Folder(root, b"", ((top.st_dev, top.st_ino),))]
    while waiting:
        here = waiting.pop()
        try:
            with os.scandir(here.path) as found:
                items = [item for item in found if item.name not in EXCLUDED]
            for item in items:
                relative = here.relative + os.fsencode(item.name)
                if item.is_symlink():
                    below = _link(tree, root, here, item.name, relative)
                    followed += below is not None
                elif item.is_dir(follow_symlinks=False):
                    below = _below(tree, here, item.path, relative, Path(item.path).stat())
                else:
                    below = None
                    _file(tree, here, item.name, relative, item.stat(follow_symlinks=False))
                if below is not None:
                    waiting.append(below)
        except OSError as error:
            raise unreadable(error, here.path) from error
        if followed > MAX_FOLLOWED_FOLDERS:
            raise InvalidValue(
                "dataset path",
                expected=f"at most {MAX_FOLLOWED_FOLDERS} folders reached through symbolic links",
                got="more; links that lead to each other multiply the tree",
            )
    return tree


def unreadable(error: OSError, path: str) -> InvalidValue:
    """Return the error for a file or folder that the system does not let us read."""
    name = error.filename if isinstance(error.filename, str) else path
    return InvalidValue(
        "dataset path",
        expected="files and folders that can be read and stay in place meanwhile",
        got=f"{shown(os.fsencode(name))[-300:]}: {error.strerror or error}",
        remedy="Change its permissions, or fingerprint a folder without it.",
    )


def shown(path: bytes) -> str:
    """Return a path as text that JSON can hold; bytes that are no UTF-8 become ``\\xNN``."""
    return path.decode("utf-8", "backslashreplace")


def _file(tree: Tree, here: _Folder, name: str, relative: bytes, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        tree.special.append(relative)
        return
    tree.entries.append(
        Entry(relative, here.path, name, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    )


def _below(tree: Tree, here: _Folder, path: str, relative: bytes, status: os.stat_result) -> _Folder | None:
    identity = (status.st_dev, status.st_ino)
    if identity in here.ancestors:
        tree.links_circular.append(relative)
        return None
    return _Folder(path, relative + b"/", (*here.ancestors, identity))


def _link(tree: Tree, root: str, here: _Folder, name: str, relative: bytes) -> _Folder | None:
    """Note where a link leads; return the folder to go into."""
    path = here.path + os.sep + name
    target = os.path.realpath(path)
    inside = target == root or target.startswith(root.rstrip(os.sep) + os.sep)
    try:
        status = Path(path).stat() if inside else None
    except (FileNotFoundError, NotADirectoryError):
        status = None
    except OSError as error:
        if error.errno != errno.ELOOP:  # links that lead to each other
            raise
        status = None
    if status is not None:
        if stat.S_ISDIR(status.st_mode):
            return _below(tree, here, path, relative, status)
        _file(tree, here, name, relative, status)
        return None
    text = os.readlink(path)  # noqa: PTH115 - Path.readlink tidies the text
    if inside and Path(text).is_absolute():
        # A broken link by full path must not change when the whole folder is moved.
        text = "/" + os.path.relpath(text, root).replace(os.sep, "/")
    (tree.links_broken if inside else tree.links_outside).append(relative)
    tree.entries.append(Entry(relative, here.path, name, 0, 0, 0, 0, os.fsencode(text)))
    return None


class Hashed(NamedTuple):
    """A file's content: ``size`` in bytes, SHA-256, and whether it stood still while it was read."""

    size: int
    sha256: bytes
    steady: bool


class _Stopped(Exception):
    """The owner of the work has gone."""


def hash_entry(entry: Entry, done: Callable[[int], None], stop: threading.Event) -> Hashed:
    """Read one file. ``done`` is told the bytes of each part. Raises OSError."""
    # Without O_NONBLOCK a FIFO that took the file's place since would be waited for.
    handle = os.open(entry.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        if entry.size <= _SMALL_BYTES:
            data = os.read(handle, entry.size + 1)
            size, content = len(data), hashlib.sha256(data)
        else:
            size, content = 0, hashlib.sha256()
        if size != entry.size:
            buffer = memoryview(bytearray(_CHUNK_BYTES))
            with open(handle, "rb", buffering=0, closefd=False) as stream:
                while count := stream.readinto(buffer):
                    content.update(buffer[:count])
                    size += count
                    done(count)
                    if stop.is_set():
                        raise _Stopped
        after = os.fstat(handle)
    finally:
        os.close(handle)
    same = (size, after.st_size, after.st_mtime_ns) == (entry.size, entry.size, entry.mtime_ns)
    return Hashed(size, content.digest(), same)


def hash_all(
    entries: list[Entry], progress: Progress, save: Callable[[list[tuple[Entry, Hashed]]], None], threads: int
) -> dict[bytes, Hashed]:
    """Read many files with several threads and return their content by relative path.

    ``save`` is given what has been read from time to time, also when the work is interrupted, by the calling thread.
    Raises ``InvalidValue`` for a file that cannot be read.
    """
    from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait  # brings logging, which is slow to import

    found: dict[bytes, Hashed] = {}
    unsaved: list[tuple[Entry, Hashed]] = []
    stop = threading.Event()
    saved_at = time.monotonic()
    pool = ThreadPoolExecutor(threads, "watcherml-hash")
    try:
        pending: set[Future[list[tuple[Entry, Hashed]]]] = set()
        for batch in _batches(entries):
            pending.add(pool.submit(_hash_batch, batch, progress, stop))
        while pending:
            finished, pending = wait(pending, _POLL_SECONDS, FIRST_COMPLETED)
            for future in finished:
                rows = future.result()
                found.update((entry.relative, hashed) for entry, hashed in rows)
                unsaved += rows
            progress.show()
            if time.monotonic() - saved_at > _SAVE_SECONDS:
                save(unsaved)
                unsaved, saved_at = [], time.monotonic()
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
        save(unsaved)
    return found


def _batches(entries: list[Entry]) -> Iterator[list[Entry]]:
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        batch.append(entry)
        size += entry.size
        if len(batch) == _BATCH_FILES or size > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _hash_batch(batch: list[Entry], progress: Progress, stop: threading.Event) -> list[tuple[Entry, Hashed]]:
    rows = []
    small = 0

    def done(count: int) -> None:
        progress.add(0, count)

    for entry in batch:
        if stop.is_set():
            break
        try:
            hashed = hash_entry(entry, done, stop)
        except _Stopped:
            break
        except OSError as error:
            raise unreadable(error, entry.path) from error
        rows.append((entry, hashed))
        small += hashed.size if entry.size <= _SMALL_BYTES else 0
    progress.add(len(rows), small)
    return rows


def hash_file(path: str | os.PathLike[str]) -> tuple[int, str]:
    """Return a file's size in bytes and its SHA-256; raises OSError."""
    name = os.fspath(path)
    status = Path(name).stat()
    entry = Entry(b"", "", name, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    hashed = hash_entry(entry, lambda _: None, threading.Event())
    return hashed.size, hashed.sha256.hex()
