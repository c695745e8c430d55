"""The writing end of the journal: where a metric point is safe the moment the call returns.

A point is a record of 32 bytes in a file that is mapped into memory, so that logging is no system call, and the kernel
keeps the pages when the process is killed. Each record ends in its mark; a record without a mark was never finished.
Where memory cannot be mapped to a file safely (a network file system), points are lines of an append-only file.

A signal's handler may log in the middle of any line of this file, in the same thread, and may end a call by raising
(KeyboardInterrupt does): locks are re-entrant, and what a call has half done the next one does again, to the same end.
"""

from __future__ import annotations

import errno
import itertools
import json
import mmap
import os
import struct
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

# at, value, step, key of the name, mark: the mark is packed last and holds WRITTEN, and HAS_STEP where there is a step.
RECORD = struct.Struct("<ddqII")
HEADER = b"WatcherML points, format 1".ljust(RECORD.size, b"\0")
WRITTEN, HAS_STEP = 1, 2
MARK_AT = 28  # offset of the mark's low byte within a record
FIRST_BYTES, LARGEST_BYTES = 1 << 16, 1 << 20
_RETRY_SECONDS = 1.0


class _Segment:
    """One mapped file. ``take`` hands out each offset once, to any thread."""

    __slots__ = ("end", "map", "path", "take")

    def __init__(self, path: Path, mapped: mmap.mmap, size: int) -> None:
        self.path, self.map = path, mapped
        self.end = size - RECORD.size
        self.take: Callable[[], int] = itertools.count(RECORD.size, RECORD.size).__next__


class MappedSpool:
    """Points of one run in one process. ``keys`` holds the key of every name that has been used."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.keys: dict[str, int] = {}
        self._folder, self._run_id, self._process = folder, run_id, _process_tag()
        self._segment: _Segment | None = None
        self._serial = 0
        self._refused_until = 0.0
        self._names: dict[str, None] = {}  # in the order of their keys, also those that the disk has not taken yet
        self._names_written = (0, 0)  # so many, in so many bytes
        self._lock = threading.RLock()
        _spools.add(self)

    def key_of(self, name: str) -> int:
        """Return the key of a name, written beside the points first; raises OSError if the disk refuses it."""
        with self._lock:
            if name not in self.keys:
                self._names.setdefault(name)
                self._write_names()
            return self.keys[name]

    def _write_names(self) -> None:
        # A key is the number of a line. Each line has its one place in the file, so that writing it twice does nothing.
        path = _private_folder(self._folder) / f"{self._run_id}.{self._process}.names"
        count, position = self._names_written if path.exists() else (0, 0)  # somebody may have removed the store
        names = list(self._names)[count:]
        lines = "".join(json.dumps(name) + "\n" for name in names).encode("ascii")
        _write_at(path, position, lines)
        self.keys.update((name, key) for key, name in enumerate(names, count))
        self._names_written = (count + len(names), position + len(lines))

    def put(self, key: int, value: float, step: int | None, at: float) -> None:
        """Store one point (``at`` in seconds since 1970); raises OSError if there is no room for more."""
        segment = self._segment
        offset = segment.take() if segment is not None else 0
        if segment is None or offset > segment.end:
            segment, offset = self._next_segment()
        if step is None:
            RECORD.pack_into(segment.map, offset, at, value, 0, key, WRITTEN)
        else:
            RECORD.pack_into(segment.map, offset, at, value, step, key, WRITTEN | HAS_STEP)

    def _next_segment(self) -> tuple[_Segment, int]:
        with self._lock:
            if self._segment is not None:
                offset = self._segment.take()
                if offset <= self._segment.end:  # another thread was here first
                    return self._segment, offset
                # Let go, not closed: another thread may still write into it. With the last one who holds it the mapping
                # goes, and its descriptor, or a long run would use up the memory and descriptors of its process.
                self._segment = None
            if time.monotonic() < self._refused_until:
                raise OSError("the journal has no room; trying again shortly")
            try:
                segment = self._make_segment()
            except OSError:
                self._refused_until = time.monotonic() + _RETRY_SECONDS
                raise
            offset = segment.take()
            self._segment = segment
            return segment, offset

    def _make_segment(self) -> _Segment:
        size = min(FIRST_BYTES << min(self._serial, 8), LARGEST_BYTES)
        folder = _private_folder(self._folder)
        while True:
            path = folder / f"{self._run_id}.{self._process}.{self._serial:06d}.points"
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
                break
            except FileExistsError:  # an earlier process of the same number
                self._serial += 1
        try:
            # Blocks are reserved now: a page that finds no block later would end the process with SIGBUS.
            _reserve(descriptor, size)
            os.pwrite(descriptor, HEADER, 0)
            mapped = mmap.mmap(descriptor, size)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        self._serial += 1
        return _Segment(path, mapped, size)

    def renew(self) -> None:
        """Start new files if somebody has removed those that are written; raises OSError if the disk refuses them.

        Names keep their keys: a thread may be using one at this moment.
        """
        with self._lock:
            if self._segment is not None and not self._segment.path.exists():
                self._segment = None
            if self.keys and not (self._folder / f"{self._run_id}.{self._process}.names").exists():
                self._write_names()

    def close(self) -> None:
        """Let go of the files; a later point goes into a new one."""
        with self._lock:
            if self._segment is not None:
                self._segment.map.close()
            self._segment = None

    def forget(self) -> None:
        """Start over in a forked child, whose files must be its own."""
        self._lock = threading.RLock()
        self._process = _process_tag()
        self._names, self._names_written = {}, (0, 0)
        self.keys, self._segment, self._serial = {}, None, 0


class AppendSpool:
    """The same for file systems on which a mapped file is not safe: one ``os.write`` a point, opened with O_APPEND."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.keys: dict[str, int] = {}
        self._names: list[str] = []
        self._folder, self._run_id, self._process = folder, run_id, _process_tag()
        self._descriptor = -1
        self._lock = threading.RLock()
        _spools.add(self)

    def key_of(self, name: str) -> int:
        """Return the key of a name; it is written with every point."""
        with self._lock:
            if name not in self.keys:
                self._names.append(name)
                self.keys[name] = self._names.index(name)
            return self.keys[name]

    def put(self, key: int, value: float, step: int | None, at: float) -> None:
        """Store one point; raises OSError if the disk refuses it."""
        # json spells NaN and infinity as words that json reads back.
        line = (json.dumps((self._names[key], value, step, at)) + "\n").encode("ascii")
        with self._lock:
            if self._descriptor < 0:
                path = _private_folder(self._folder) / f"{self._run_id}.{self._process}.jsonl"
                self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            _write_whole(self._descriptor, line)

    def renew(self) -> None:
        """Start a new file if somebody has removed the one that is written."""
        with self._lock:
            if self._descriptor >= 0 and not os.fstat(self._descriptor).st_nlink:
                os.close(self._descriptor)
                # How far the old file was folded may still be on record.
                self._descriptor, self._process = -1, _process_tag()

    def close(self) -> None:
        """Close the file; a later point opens it again."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
            self._descriptor = -1

    def forget(self) -> None:
        """Start over in a forked child, whose file must be its own."""
        self._lock = threading.RLock()
        self._process = _process_tag()
        self._descriptor = -1


Spool = MappedSpool | AppendSpool
_spools: weakref.WeakSet[MappedSpool | AppendSpool] = weakref.WeakSet()


def _process_tag() -> str:
    # Numbers of processes come again; keys of names must not be taken for another process's.
    return f"{os.getpid()}-{os.urandom(3).hex()}"


def _private_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _write_at(path: Path, position: int, data: bytes) -> None:
    """Write bytes at their place; what a full disk took of them the next attempt writes over."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
    try:
        os.lseek(descriptor, position, os.SEEK_SET)
        if os.write(descriptor, data) != len(data):
            raise OSError(errno.ENOSPC, "the disk took only part of a line")
    finally:
        os.close(descriptor)


def _write_whole(descriptor: int, line: bytes) -> None:
    """Append a line to a file of this process; what a full disk took of it is taken back, or the next would join it."""
    written = os.write(descriptor, line)
    if written != len(line):
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise OSError(errno.ENOSPC, "the disk took only part of a line")


def _reserve(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.pwrite(descriptor, bytes(size), 0)


def _after_fork() -> None:
    for spool in list(_spools):
        spool.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
