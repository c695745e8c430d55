"""Which stores notebooks use right now: one small file a kernel, in Jupyter's runtime folder.

A kernel writes its own file and takes it away when it ends. A Jupyter server reads them all and shows no other folder
than those they name, so that no path ever comes from a browser. Both sides run as the same user: a file that somebody
else wrote, or could have written, counts for nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from watcherml.platform import ProcessId, boot_id, is_alive, make_private_dir, write_atomically

_FOLDER = "watcherml"
_VERSION = 1
_MOST_BYTES = 65_536
# A file of another boot, or of another machine that shares this home, may belong to a kernel that lives there.
_FOREIGN_SECONDS = 14 * 86_400.0


class Registration(NamedTuple):
    """A store and the kernel that uses it; ``since`` is in seconds since 1970."""

    path: Path
    kernel_id: str
    process: ProcessId
    since: float

    @property
    def store_id(self) -> str:
        """What a browser calls the store: 32 hexadecimal digits, made of its path."""
        return store_id(self.path)


def store_id(path: Path) -> str:
    """Return the name that a browser is given for a folder."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:32]


def folder() -> Path | None:
    """Return where registrations lie, None where Jupyter is not installed."""
    try:
        from jupyter_core.paths import jupyter_runtime_dir
    except ImportError:
        return None
    return Path(jupyter_runtime_dir()) / _FOLDER


def register(made: Registration) -> Path | None:
    """Write the registration of a kernel over the one it had; return its file, None where Jupyter is not installed.

    Raises ``OSError`` if the folder cannot be written.
    """
    place = folder()
    if place is None:
        return None
    make_private_dir(place)
    path = place / _name(made.process)
    body = {
        "version": _VERSION,
        "path": str(made.path),
        "kernel_id": made.kernel_id,
        "process": list(made.process),
        "since": made.since,
    }
    write_atomically(path, json.dumps(body).encode("ascii"))
    return path


def registrations(now: float) -> list[Registration]:
    """Return what living kernels of this machine registered, the oldest first, and remove what dead ones left."""
    place = folder()
    found = []
    for path in sorted(place.glob("*.json")) if place is not None else ():
        made = _read(path)
        if made is None:
            continue
        if made.process.boot_id != boot_id():
            if now - made.since > _FOREIGN_SECONDS:
                _remove(path)
        elif is_alive(made.process):
            found.append(made)
        else:
            _remove(path)
    return sorted(found, key=lambda one: (one.since, one.kernel_id))


def _name(process: ProcessId) -> str:
    # Machines that share a home may use one number for two processes.
    told = hashlib.sha256(f"{process.started} {process.boot_id}".encode()).hexdigest()[:12]
    return f"{process.pid}-{told}.json"


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # another server was faster, or may not
        path.unlink()


def _read(path: Path) -> Registration | None:
    """Return what a file says, None if it is not one that this user's kernel has written."""
    try:
        with _opened(path) as descriptor:
            told = os.fstat(descriptor)
            if not stat.S_ISREG(told.st_mode) or told.st_size > _MOST_BYTES or not _is_private(told):
                return None
            return _decode(json.loads(os.read(descriptor, _MOST_BYTES)))
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    # Without O_NONBLOCK a pipe of that name would keep the server waiting.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_private(told: os.stat_result) -> bool:
    if os.name == "nt":  # there the folder of the user keeps others out
        return True
    return told.st_uid == os.getuid() and not told.st_mode & 0o077


def _decode(body: Any) -> Registration | None:
    if not isinstance(body, dict) or body.get("version") != _VERSION:
        return None
    path, kernel_id, process = body.get("path"), body.get("kernel_id"), body.get("process")
    if not (isinstance(path, str) and isinstance(kernel_id, str) and isinstance(process, list) and len(process) == 3):
        return None
    pid, started, boot = process
    if type(pid) is not int or pid <= 0 or not isinstance(boot, str) or "\0" in path or not Path(path).is_absolute():
        return None
    moments = float(started), float(body["since"])
    os.fsencode(path)  # raises for a surrogate that is no byte of a name
    if not all(map(math.isfinite, moments)):
        return None
    return Registration(Path(path), kernel_id, ProcessId(pid, moments[0], boot), moments[1])
