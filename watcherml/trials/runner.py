"""The local executor: one guard process a trial."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple, Protocol

from watcherml.platform import new_session_options, write_atomically
from watcherml.protocol.request import Launch, TrialRequest
from watcherml.protocol.result import TrialResult
from watcherml.trials.check_entrypoint import child_environment
from watcherml.trials.keeper import SPARE_SECONDS
from watcherml.trials.members import kill_all
from watcherml.trials.outcome import Exit, result_of
from watcherml.trials.paths import TrialPaths, read_plain

_ABANDON_SECONDS = 8.0


class Executor(Protocol):
    """What a campaign needs of a place to run trials."""

    def submit(self, request: TrialRequest, launch: Launch) -> None:
        """Start a trial."""

    def poll(self, trial_id: str) -> TrialResult | None:
        """Return the result once the trial and all its processes are gone."""

    def stop(self, trial_id: str) -> None:
        """Ask for a trial's end; ``poll`` still returns its result."""

    def abandon(self) -> None:
        """End every trial at once and wait for that; none of them has a result any more."""


class _Running(NamedTuple):
    """A trial that goes on; ``began`` is of the monotonic clock, because somebody may set the other one."""

    request: TrialRequest
    paths: TrialPaths
    guard: subprocess.Popen[bytes]
    started: float
    began: float


class LocalExecutor:
    """Runs trials on this machine, each under its own guard."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._running: dict[str, _Running] = {}

    def submit(self, request: TrialRequest, launch: Launch) -> None:
        """Write request and launch, then start the guard; its standard input is the proof that we live."""
        paths = TrialPaths.of(self._store, request.trial_id)
        paths.make()
        write_atomically(paths.request, request.to_json().encode())
        write_atomically(paths.launch, launch.to_json().encode())
        with paths.guard_log.open("wb") as log:
            guard = subprocess.Popen(
                [sys.executable, "-m", "watcherml.trials.guard", str(paths.request)],
                cwd=paths.folder,
                env=child_environment(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                **new_session_options(),
            )
        self._running[request.trial_id] = _Running(request, paths, guard, time.time(), time.monotonic())

    def poll(self, trial_id: str) -> TrialResult | None:
        """Return the result once the guard has ended; a guard that died without a word makes the trial ``lost``."""
        request, paths, guard, started, began = self._running[trial_id]
        if guard.poll() is None:
            allowed = request.timeout_seconds + request.grace_seconds + 2 * SPARE_SECONDS
            if time.monotonic() - began > allowed:
                guard.kill()  # somebody stopped it; its other half ends the trial
            return None
        if guard.stdin is not None:
            guard.stdin.close()
        del self._running[trial_id]
        kill_all(paths.mark)  # if the guard itself was killed, nobody else has cleaned up
        paths.drop_outputs()
        # What an entrypoint that killed its guard left as its own end is not read.
        ended = read_exit(paths, started) if guard.returncode == 0 else _lost(started)
        return result_of(request, ended, paths.folder)

    def stop(self, trial_id: str) -> None:
        """Tell the guard to end the trial, with its grace period."""
        guard = self._running[trial_id].guard
        try:
            if guard.stdin is not None:
                guard.stdin.write(b"stop\n")
                guard.stdin.flush()
        except OSError:
            pass  # it has ended meanwhile

    def abandon(self) -> None:
        """Close the guards' standard input, as this process' death would, and wait until they have cleaned up."""
        left = [one.guard for one in self._running.values()]
        self._running.clear()
        for guard in left:
            if guard.stdin is not None:
                with contextlib.suppress(OSError):
                    guard.stdin.close()
        deadline = time.monotonic() + _ABANDON_SECONDS
        for guard in left:
            with contextlib.suppress(subprocess.TimeoutExpired):
                guard.wait(max(0.1, deadline - time.monotonic()))


def read_exit(paths: TrialPaths, started_at: float) -> Exit:
    """Return how a trial ended by its guard's file; ``guard_lost`` where there is none."""
    try:
        return Exit.from_data(json.loads(read_plain(paths.exit)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return _lost(started_at)


def _lost(started_at: float) -> Exit:
    return Exit("guard_lost", started_at=started_at, wall_seconds=round(max(0.0, time.time() - started_at), 3))
