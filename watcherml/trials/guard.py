"""The guard of one trial: ``python -m watcherml.trials.guard REQUEST``.

It starts the worker in a new session, keeps its time and its logs, and at the end leaves no process behind. Its
standard input is a pipe held by the supervisor: when that closes, the supervisor is gone, and so is the trial.
The guard is a subreaper where the system has that, so that orphaned grandchildren come back to it.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

from watcherml.platform import become_subreaper, new_session_options, signal_name, write_atomically
from watcherml.protocol.request import Launch, TrialRequest
from watcherml.recorder.host_memory import oom_kills
from watcherml.recorder.redact import remember
from watcherml.trials.logs import CappedLog
from watcherml.trials.paths import GUARD, MARKER, TrialPaths

_POLL_SECONDS = 0.05
_SWEEP_SECONDS = 5.0


class Guard:
    """One trial's guard; ``run`` returns after the worker and all its descendants are gone."""

    def __init__(self, paths: TrialPaths) -> None:
        self.paths = paths
        self.request = TrialRequest.from_json(paths.request.read_bytes())
        self.launch = Launch.from_json(paths.launch.read_bytes())
        # What an entrypoint prints goes into a file of the store.
        remember(os.environ.get(one.removeprefix("env:"), "") for one in self.launch.secrets.values())
        self.reason = "exited"
        self._wake = threading.Event()

    def run(self) -> None:
        """Run the worker to its end and write ``exit.json``."""
        become_subreaper()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._end("stopped"))
        threading.Thread(target=self._watch_supervisor, daemon=True).start()
        nonce = secrets.token_hex(8)
        kills_before = oom_kills() or 0
        started_at, started = time.time(), time.monotonic()
        worker = self._start_worker(nonce)
        limit = self.launch.log_limit_bytes
        logs = [CappedLog(worker.stdout, self.paths.stdout, limit), CappedLog(worker.stderr, self.paths.stderr, limit)]
        self._wait(worker, started)
        if worker.poll() is None:
            self._terminate(worker)
        worker.wait()
        wall = time.monotonic() - started
        kill_all(self.request.trial_id, descendants=True)
        for log in logs:
            log.finish()
        code = worker.returncode
        report = self.paths.report(nonce)
        found = {
            "reason": self.reason,
            "exit_code": code if code >= 0 else None,
            "signal": signal_name(-code) if code < 0 else None,
            "started_at": started_at,
            "wall_seconds": round(wall, 3),
            "oom_kills": (oom_kills() or 0) - kills_before,
            "report": report.name if report.is_file() else None,
        }
        write_atomically(self.paths.exit, json.dumps(found).encode())

    def _start_worker(self, nonce: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            **dict(self.request.environment),
            MARKER: self.request.trial_id,
            GUARD: str(os.getpid()),
            "PYTHONUNBUFFERED": "1",
        }
        if self.request.device.kind == "simulated":
            # It counts CPU tensors: an entrypoint that prefers a GPU must not find one.
            environment["CUDA_VISIBLE_DEVICES"] = ""
            # OpenMP threads spin while they wait; on a busy machine that makes a CPU step ten times slower.
            environment.setdefault("OMP_WAIT_POLICY", "passive")
        worker = subprocess.Popen(
            [self.launch.python, "-m", "watcherml.trials.worker", str(self.paths.request)],
            cwd=self.paths.folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **new_session_options(),
        )
        assert worker.stdin is not None
        try:
            worker.stdin.write(nonce.encode() + b"\n")
            worker.stdin.close()
        except OSError:
            pass  # it died at once; its exit says why
        return worker

    def _watch_supervisor(self) -> None:
        # Read from the raw descriptor: a buffered stdin must not be locked when the interpreter shuts down.
        while True:
            try:
                data = os.read(0, 64)
            except OSError:
                data = b""
            if not data:
                self._end("supervisor_lost")
                return
            if b"stop" in data:
                self._end("stopped")

    def _end(self, reason: str) -> None:
        if not self._wake.is_set():
            self.reason = reason
            self._wake.set()

    def _wait(self, worker: subprocess.Popen[bytes], started: float) -> None:
        while worker.poll() is None and not self._wake.is_set():
            if time.monotonic() - started > self.request.timeout_seconds:
                self._end("timeout")
                return
            self._wake.wait(_POLL_SECONDS)

    def _terminate(self, worker: subprocess.Popen[bytes]) -> None:
        """Ask, wait the grace period, then kill. A lost supervisor gets no grace."""
        grace = 0.0 if self.reason == "supervisor_lost" else self.request.grace_seconds
        if grace > 0:
            worker.terminate()
            try:
                worker.wait(grace)
                return
            except subprocess.TimeoutExpired:
                pass
        worker.kill()


def kill_all(trial_id: str, *, descendants: bool = False, seconds: float = _SWEEP_SECONDS) -> int:
    """Kill every process of a trial by its marker; returns how many were found.

    ``descendants`` also kills everything below this process (the guard's own way: a child may have dropped the
    marker). Repeats until none is left or the time is up, because a process may fork while others are killed.
    """
    deadline = time.monotonic() + seconds
    total = 0
    while True:
        found = members(trial_id, descendants)
        for process in found:
            try:
                process.kill()
            except psutil.Error:
                pass  # gone meanwhile
        total += len(found)
        psutil.wait_procs(found, timeout=1)
        if not found or time.monotonic() > deadline:
            return total


def members(trial_id: str, descendants: bool = False) -> list[psutil.Process]:
    """Return the living processes that carry a trial's marker, this one excluded."""
    found = {}
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and _alive(process) and process.environ().get(MARKER) == trial_id:
                found[process.pid] = process
        except (psutil.Error, OSError):
            continue  # another user's process, or gone meanwhile
    if descendants:
        below = psutil.Process().children(recursive=True)
        found.update({child.pid: child for child in below if _alive(child)})
    return list(found.values())


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def main(argument: str) -> int:
    """Guard one trial."""
    Guard(TrialPaths(Path(argument).absolute().parent)).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
