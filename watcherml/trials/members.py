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
# How long rounds go on that find nobody and are not sure: where processes come and go all the time none is.
_UNSURE_SECONDS = 1.0
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
    when none is left or the time is up. A round in which a process was gone before it could be looked at does not tell:
    it may have handed on to a child.
    """
    deadline = time.monotonic() + seconds
    total, last = 0, time.monotonic()
    dead: set[int] = set()
    while True:
        found, sure = _look(mark, descendants, dead, stop=True)
        for process in found:
            with contextlib.suppress(psutil.Error):  # gone meanwhile
                process.kill()
        total += len(found)
        psutil.wait_procs(found, timeout=1)
        now = time.monotonic()
        last = now if found else last
        if (not found and (sure or now > last + _UNSURE_SECONDS)) or now > deadline:
            return total


def members(mark: str, descendants: bool = False) -> list[psutil.Process]:
    """Return the living processes that carry a trial's marks, this one excluded."""
    return _look(mark, descendants, set(), stop=False)[0]


def _look(mark: str, descendants: bool, dead: set[int], *, stop: bool) -> tuple[list[psutil.Process], bool]:
    """Return the members, and whether none can have been missed; ``stop`` stops each as soon as it is found.

    ``dead`` are those that were found to have ended, which is news only once.
    """
    found: dict[int, psutil.Process] = {}
    marks = (str(_number(mark)).encode(), f"{MARKER}={mark}".encode())
    here, sure = os.getpid(), True
    # The newest first: what lives for moments only is looked at while it lives.
    for pid in sorted(psutil.pids(), reverse=True):
        carries = None if pid == here else _carries(pid, *marks)
        if carries:
            _add(pid, found, stop)
        elif carries is None and pid != here and pid not in dead:
            dead.add(pid)
            sure = False
    if descendants:
        for child in psutil.Process().children(recursive=True):
            _add(child.pid, found, stop)
    return list(found.values()), sure


def _add(pid: int, found: dict[int, psutil.Process], stop: bool) -> None:
    with contextlib.suppress(psutil.Error, OSError):
        if stop and os.name != "nt":
            session, group = os.getsid(pid), os.getpgid(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
            if session != os.getsid(0):  # one that the trial has opened: all that is in it is the trial's
                os.killpg(group, signal.SIGSTOP)  # at once, a child of this moment included
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            found[pid] = process


def _carries(pid: int, number: bytes, variable: bytes) -> bool | None:
    """Tell whether a process carries a mark, None if it has ended; read in ``/proc``, because a round must be quick."""
    if not sys.platform.startswith("linux"):
        with contextlib.suppress(psutil.Error, OSError):
            return bool(psutil.Process(pid).environ().get(MARKER) == variable.decode().partition("=")[2])
        return False
    try:
        limits = Path(f"/proc/{pid}/limits").read_bytes()
        if not limits:
            return None  # nobody has waited for it yet
        if number in limits.partition(_LIMIT_NAME)[2].partition(b"\n")[0].split():
            return True
        return variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError:
        return False  # another user's process
