"""Who belongs to a trial, and leaving none of them behind.

A process of a trial is known by either of two marks that every descendant inherits. The first is a variable of its
environment, which ``execve`` with an empty environment drops. The second is a number in a limit that Linux has kept
since 2.4.25 without using it (``RLIMIT_LOCKS``, ``man 2 getrlimit``): it survives fork, exec, ``setsid`` and an empty
environment, and anybody may read it in ``/proc/PID/limits``. Only code that lowers that very limit loses it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import sys
import time
from pathlib import Path

import psutil

from watcherml.trials.paths import MARKER

_SWEEP_SECONDS = 10.0
_RLIMIT_LOCKS = 10
_LIMIT_NAME = b"Max file locks"


def put_mark(mark: str) -> bool:
    """Put the second mark on this process and all its later descendants; False where the system has none."""
    if not sys.platform.startswith("linux"):
        return False
    import resource

    try:
        resource.setrlimit(_RLIMIT_LOCKS, (_number(mark),) * 2)
    except (OSError, ValueError):
        return False  # inside another trial, whose mark is the lower one
    return True


def _number(mark: str) -> int:
    return int(hashlib.sha256(mark.encode()).hexdigest()[:12], 16) + 1


def kill_all(mark: str, *, descendants: bool = False, seconds: float = _SWEEP_SECONDS) -> int:
    """Kill every process of a trial by its mark (``TrialPaths.mark``); returns how many were found.

    ``descendants`` also kills everything below this process (the guard's own way). Each process is stopped as soon as
    it is found, and all are killed when the round is over: what only ever forks would be ahead otherwise. Rounds end
    when none is left or the time is up.
    """
    deadline = time.monotonic() + seconds
    total = 0
    while True:
        found = members(mark, descendants, stop=True)
        for process in found:
            with contextlib.suppress(psutil.Error):  # gone meanwhile
                process.kill()
        total += len(found)
        psutil.wait_procs(found, timeout=1)
        if not found or time.monotonic() > deadline:
            return total


def members(mark: str, descendants: bool = False, *, stop: bool = False) -> list[psutil.Process]:
    """Return the living processes that carry a trial's marks, this one excluded; ``stop`` stops each at once."""
    found: dict[int, psutil.Process] = {}
    marks = (str(_number(mark)).encode(), f"{MARKER}={mark}".encode())
    here = os.getpid()
    for pid in psutil.pids():
        if pid != here and _carries(pid, *marks):
            _add(pid, found, stop)
    if descendants:
        for child in psutil.Process().children(recursive=True):
            _add(child.pid, found, stop)
    return list(found.values())


def _add(pid: int, found: dict[int, psutil.Process], stop: bool) -> None:
    with contextlib.suppress(psutil.Error, OSError):
        if stop and os.name != "nt":
            os.kill(pid, signal.SIGSTOP)
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            found[pid] = process


def _carries(pid: int, number: bytes, variable: bytes) -> bool:
    """Tell whether a process carries a mark; read as it stands in ``/proc``, because a round must be quick."""
    if not sys.platform.startswith("linux"):
        with contextlib.suppress(psutil.Error, OSError):
            return bool(psutil.Process(pid).environ().get(MARKER) == variable.decode().partition("=")[2])
        return False
    try:
        limits = Path(f"/proc/{pid}/limits").read_bytes()
        if number in limits.partition(_LIMIT_NAME)[2].partition(b"\n")[0].split():
            return True
        return variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False  # another user's process, or gone meanwhile
