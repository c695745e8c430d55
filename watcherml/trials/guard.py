"""The guard of one trial: ``python -m watcherml.trials.guard REQUEST``.

It starts the worker in a new session, keeps its time and its logs, and at the end leaves no process behind. Its
standard input is a pipe held by the supervisor: when that closes, the supervisor is gone, and so is the trial.
The guard is a subreaper where the system has that, so that orphaned grandchildren come back to it. It has an outer half
(``keeper``) that ends the trial if this one is killed.

What holds against an entrypoint and what does not. It runs with its user's rights and in the process that measures it,
so a determined one can forge what it returns, what is counted and what is read back; no check in that process can
exclude it. Against that stand the control trial (a function that ignores its configuration passes where the source
failed), the independent confirmations, and a person who reads the function. What must not be cheap is kept from it:
the report's name and digest (``handover``), this package's own code (``surroundings``), an end that its guard did not
write (``keeper``, ``runner``), and processes that outlive it (``members``). It can still kill both halves of its guard
together with the supervisor: then its own process is killed by the system, and what it had started elsewhere is
killed, by its marks, when the campaign is taken up again.
"""

from __future__ import annotations

import contextlib
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

from watcherml.platform import become_subreaper, is_file, new_session_options, signal_name
from watcherml.protocol.request import Launch, TrialRequest
from watcherml.recorder.host_memory import oom_kills
from watcherml.recorder.redact import remember
from watcherml.recorder.told import OUTPUTS
from watcherml.trials.handover import GuardEnd
from watcherml.trials.keeper import guarded
from watcherml.trials.logs import CappedLog
from watcherml.trials.members import kill_all as kill_all  # by this name for whoever supervises
from watcherml.trials.members import members as members
from watcherml.trials.paths import GUARD, MARKER, TrialPaths

_POLL_SECONDS = 0.05
_REAP_SECONDS = 2.0


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
        self._outer: int | None = None

    def run(self, outer: int | None = None) -> None:
        """Run the worker to its end and write ``exit.json``; ``outer`` is the other half's pid, if there is one."""
        become_subreaper()
        self._outer = outer
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._end("stopped"))
        threading.Thread(target=self._watch_supervisor, daemon=True).start()
        nonce = secrets.token_hex(8)
        kills_before = oom_kills() or 0
        started_at, started = time.time(), time.monotonic()
        line = GuardEnd()
        worker = self._start_worker(line, nonce)
        limit = self.launch.log_limit_bytes
        logs = [CappedLog(worker.stdout, self.paths.stdout, limit), CappedLog(worker.stderr, self.paths.stderr, limit)]
        self._wait(worker, started)
        if worker.poll() is None:
            self._terminate(worker)
        worker.wait()
        wall = time.monotonic() - started
        kill_all(self.paths.mark, descendants=True)
        for log in logs:
            log.finish()
        code, digest = worker.returncode, line.digest()
        report = self.paths.report(nonce)
        sealed = digest is not None or not line.brings_digests
        found = {
            "reason": self.reason,
            "exit_code": code if code >= 0 else None,
            "signal": signal_name(-code) if code < 0 else None,
            "started_at": started_at,
            "wall_seconds": round(wall, 3),
            "oom_kills": (oom_kills() or 0) - kills_before,
            "report": report.name if sealed and is_file(report) else None,
            "report_sha256": digest,
        }
        self.paths.write_exit(json.dumps(found).encode())

    def _start_worker(self, line: GuardEnd, nonce: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            **dict(self.request.environment),
            MARKER: self.paths.mark,
            GUARD: str(os.getpid()),
            OUTPUTS: str(self.paths.outputs),
            "PYTHONUNBUFFERED": "1",
        }
        if self.launch.gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = self.launch.gpu
        if self.request.device.kind == "simulated":
            # It counts CPU tensors: an entrypoint that prefers a GPU must not find one.
            environment["CUDA_VISIBLE_DEVICES"] = ""
            # OpenMP threads spin while they wait; on a busy machine that makes a CPU step ten times slower.
            environment.setdefault("OMP_WAIT_POLICY", "passive")
        worker = subprocess.Popen(
            [self.launch.python, "-m", "watcherml.trials.worker", str(self.paths.request)],
            cwd=self.paths.folder,
            env=environment,
            stdin=line.stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **new_session_options(),
        )
        line.give(worker, nonce)
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
        reaped = started
        while worker.poll() is None and not self._wake.is_set():
            if self._outer is not None and os.getppid() != self._outer:
                self._end("supervisor_lost")  # half of the guard is: nobody would take the result
                return
            if time.monotonic() - reaped > _REAP_SECONDS:
                reaped = time.monotonic()
                _reap_orphans(worker.pid)
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


def _reap_orphans(worker: int) -> None:
    """Take note of ended processes that came to this subreaper, or a long trial would fill the table of processes."""
    for child in psutil.Process().children():
        if child.pid != worker:
            with contextlib.suppress(OSError):
                os.waitpid(child.pid, os.WNOHANG)


def main(argument: str) -> int:
    """Guard one trial."""
    guard = Guard(TrialPaths(Path(argument).absolute().parent))
    request = guard.request
    return guarded(guard.paths, request.timeout_seconds + request.grace_seconds, guard.run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
