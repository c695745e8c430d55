"""Keeping code that is only looked at from leaving traces: no file, no program, no connection outside its scratch.

Two fences. Everywhere, Python's audit events: opening a file for writing, changing a folder, starting a program and
connecting raise ``PermissionError`` unless they stay in the scratch folder; files opened with ``open`` for writing go
into the scratch folder instead, and so do folders made with ``os.mkdir``, so that code which keeps a log goes on. On
Linux with Landlock (5.13 and later), also the kernel: it refuses every write outside the scratch folder and, from 6.7
on, every TCP connection, whoever asks, C++ and forked children included. Where there is no Landlock, code below Python
(a C++ library that opens a file itself, ``ctypes``) is not held back. Reading is not limited anywhere.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import hashlib
import io
import os
import sys
from pathlib import Path
from typing import Any

# The largest file that may be written into the scratch folder.
MAX_FILE_BYTES = 64 * 2**20

_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Audit events (CPython's table of them) with the positions of the paths that they change and of their dir_fd.
_CHANGES: dict[str, tuple[tuple[int, int], ...]] = {
    "os.mkdir": ((0, 2),), "os.remove": ((0, 1),), "os.rmdir": ((0, 1),), "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),), "os.symlink": ((1, 2),), "os.truncate": ((0, -1),), "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),), "os.utime": ((0, 3),), "os.setxattr": ((0, -1),), "os.removexattr": ((0, -1),),
    "sqlite3.connect": ((0, -1),),
}  # fmt: skip
_PROGRAMS = frozenset(("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile"))
_FORKS = frozenset(("os.fork", "os.forkpty"))
_CONNECTIONS = frozenset(("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"))


def confine(scratch: Path) -> Fence:
    """Hold this process, from here on and for good, to its scratch folder."""
    fence = Fence(scratch)
    _limit_files()
    fence.by_kernel = _landlock(scratch)
    builtins.open = io.open = fence.open
    os.mkdir = fence.mkdir
    sys.addaudithook(fence.audit)
    return fence


class Fence:
    """What a confined process may do; ``by_kernel`` tells whether the kernel sees to the files too."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = str(scratch.resolve())
        self._elsewhere = scratch / "elsewhere"
        self._elsewhere.mkdir(exist_ok=True)
        self._moved: dict[str, str] = {}
        self._open, self._mkdir = io.open, os.mkdir
        self.by_kernel = False
        self.may_fork = True

    def inside(self, path: Any, folder: Any = -1) -> bool:
        """Tell whether a path lies in the scratch folder, links resolved; a descriptor is one that is open already."""
        if isinstance(path, int):
            return True
        text = os.fsdecode(path)
        if isinstance(folder, int) and folder >= 0 and not os.path.isabs(text):  # noqa: PTH117 - see below
            text = f"/proc/self/fd/{folder}/{text}"
        # Not pathlib, which opens files through what stands here.
        real = os.path.realpath(text)
        return real == os.devnull or real == self.scratch or real.startswith(self.scratch + os.sep)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Refuse what would leave a trace outside."""
        if event == "open":
            path, mode, flags = arguments
            writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool(flags & _WRITE_FLAGS)
            if writes and path is not None and not self.inside(path):
                _refuse("writes to", path)
        elif event in _CHANGES:
            for place, folder in _CHANGES[event]:
                path = arguments[place]
                in_memory = event == "sqlite3.connect" and path in (":memory:", "", b":memory:")
                if not in_memory and not self.inside(path, arguments[folder] if folder >= 0 else -1):
                    _refuse("changes", path)
        elif event in _PROGRAMS:
            _refuse("starts the program", arguments[0])
        elif event in _CONNECTIONS:
            _refuse("opens a connection to", arguments[1])
        elif event in _FORKS and not self.may_fork:
            _refuse("starts a process of", "itself")

    def open(self, file: Any, mode: str = "r", *options: Any, **named: Any) -> Any:
        """The built-in ``open``; a file outside that is written is one of the scratch folder."""
        if not isinstance(file, int) and isinstance(mode, str):
            real = os.path.realpath(os.fsdecode(file))
            if any(letter in mode for letter in "wax+") and not self.inside(file):
                name = hashlib.sha256(real.encode("utf-8", "surrogateescape")).hexdigest()[:24]
                self._moved[real] = str(self._elsewhere / name)
            file = self._moved.get(real, file)
        return self._open(file, mode, *options, **named)

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        """``os.mkdir``; outside nothing is made, and nothing is said."""
        if self.inside(path, -1 if dir_fd is None else dir_fd):
            self._mkdir(path, mode, dir_fd=dir_fd)
        elif os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fsdecode(path))


def _refuse(what: str, where: Any) -> None:
    words = where if isinstance(where, str) else os.fsdecode(where) if isinstance(where, bytes) else str(where)
    raise PermissionError(errno.EPERM, f"refused while code is only looked at: it {what} {words[:200]}")


def _limit_files() -> None:
    try:
        import resource
        import signal
    except ImportError:
        return
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit is an OSError then
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = MAX_FILE_BYTES if most == resource.RLIM_INFINITY else min(MAX_FILE_BYTES, most)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))


# linux/landlock.h: what may be done to files and folders (by the version that brought it), and to TCP.
_FS_WRITES = sum(1 << bit for bit in (1, 4, 5, 6, 7, 8, 9, 10, 11, 12))
_FS_REFER, _FS_TRUNCATE, _FS_WRITE_FILE = 1 << 13, 1 << 14, 1 << 1
_NET_TCP = 0b11
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_PR_SET_NO_NEW_PRIVS = 38


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("tcp", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def _landlock(scratch: Path) -> bool:
    """Have the kernel refuse writes outside the folder; False where it cannot."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, 0, 1)
    if version < 1:
        return False
    writes = _FS_WRITES | (_FS_REFER if version >= 2 else 0) | (_FS_TRUNCATE if version >= 3 else 0)
    attributes = _Ruleset(writes, _NET_TCP if version >= 4 else 0)
    rules = libc.syscall(_CREATE_RULESET, ctypes.byref(attributes), 16 if version >= 4 else 8, 0)
    if rules < 0:
        return False
    try:
        on_a_file = writes & (_FS_WRITE_FILE | _FS_TRUNCATE)
        for path, allowed in ((str(scratch), writes), (os.devnull, on_a_file)):
            folder = os.open(path, getattr(os, "O_PATH", os.O_RDONLY))
            try:
                if libc.syscall(_ADD_RULE, rules, 1, ctypes.byref(_Beneath(allowed, folder)), 0) != 0:
                    return False
            finally:
                os.close(folder)
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            return False
        return bool(libc.syscall(_RESTRICT_SELF, rules, 0) == 0)
    finally:
        os.close(rules)
