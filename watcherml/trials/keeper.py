"""The outer half of a guard, so that no single killed process leaves a trial's processes behind.

The guard forks before it does anything: the inner half starts the worker and does the work, the outer half waits for
it. Each is a subreaper, so what an entrypoint starts and abandons comes back to the inner half, or to the outer one if
the inner is gone; each kills everything if the other dies. Supervisor, outer half and inner half are three processes,
and whichever of them lives ends the trial.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from types import FrameType

from watcherml.platform import become_subreaper
from watcherml.trials.members import kill_all
from watcherml.trials.paths import TrialPaths

# An inner half that is stopped, and not dead, ends no trial: it gets this long beyond what the trial may take, and
# this long after the supervisor's death.
SPARE_SECONDS = 15.0
_LOST_SECONDS = 8.0
_LOOK_SECONDS = 1.0


def guarded(paths: TrialPaths, seconds: float, inner: Callable[[int | None], None]) -> int:
    """Run ``inner`` in a forked half and return 0 once it has ended well and no process is left.

    ``inner`` gets the outer half's pid, None where the system cannot fork and there is only one half. ``seconds`` is
    what the trial may take. Where the inner half died, what may stand as the trial's end is removed: nobody wrote it
    who could know.
    """
    if not hasattr(os, "fork"):
        inner(None)
        paths.drop_outputs()
        return 0
    become_subreaper()
    alive, held = os.pipe()
    outer = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(alive)
        inner(outer)
        # Not through the interpreter's end: it waits for threads of a debugger or a profiler that no fork brings along.
        os._exit(0)
    os.close(held)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda signum, _: _send(pid, signum))
    well = _wait(pid, alive, time.monotonic() + seconds + SPARE_SECONDS)
    kill_all(paths.mark, descendants=True)
    _reap()
    if not well:
        with contextlib.suppress(OSError):
            paths.exit.unlink(missing_ok=True)
    # Here, where no deadline waits for the end of it: checkpoints may take their time.
    paths.drop_outputs()
    return 0 if well else 1


def _wait(pid: int, alive: int, deadline: float) -> bool:
    """Wait for the inner half; True if it ended by itself and without an error."""
    watch = select.poll()
    watch.register(alive, select.POLLIN)
    watch.register(0, 0)  # only whether the supervisor hung up: what it says is for the inner half
    while True:
        for number, status in _reap():
            if number == pid:
                return status == 0
        for descriptor, _ in watch.poll(_LOOK_SECONDS * 1000):
            watch.unregister(descriptor)
            if descriptor == 0:
                deadline = min(deadline, time.monotonic() + _LOST_SECONDS)
        if time.monotonic() > deadline:
            _send(pid, signal.SIGKILL)


def _reap() -> list[tuple[int, int]]:
    ended = []
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended.append(found)
    return ended


def _send(pid: int, number: int, _: FrameType | None = None) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
