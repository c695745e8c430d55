"""Two optimizer steps without arithmetic: what a configuration's peak would be, asked of a child process.

::

    with DryRun() as dry:
        reason = dry.open(entrypoint, project_root)
        answer = dry.ask(config)            # peak_bytes, or None and the reason

The child sees no GPU, leaves no trace outside its scratch folder (see ``confine``), and is gone with everything it
started when the block ends, when its time is up, or when this process dies. Its answers are predictions, never
evidence.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.platform import interpreter, new_session_options, signal_name
from watcherml.recorder.redact import redact_text
from watcherml.recorder.told import OUTPUTS
from watcherml.trials.check_entrypoint import child_environment, resolved_root
from watcherml.trials.dry_run_child import answer_path
from watcherml.trials.logs import CappedLog
from watcherml.trials.members import kill_all
from watcherml.trials.paths import GUARD, MARKER

TIMEOUT_SECONDS = 60.0  # for the import and all candidates together
_LOG_BYTES = 65_536
_POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Answer:
    """What a dry run found: the peak in bytes after ``steps`` optimizer steps, or None and the reason in words.

    ``operators`` is how many were looked at, which is what the answer cost; ``seconds`` is how long it took.
    """

    peak_bytes: int | None
    reason: str = ""
    steps: int = 0
    operators: int = 0
    seconds: float = 0.0


class DryRun:
    """A child process that answers one candidate after the other; enter it before asking.

    It may be entered before the entrypoint is known: it loads PyTorch meanwhile. Its time counts from ``open`` on.
    """

    def __init__(self, *, python: str | None = None, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._python = interpreter(python)
        self._timeout = timeout_seconds
        self._deadline = 0.0
        self._number = 0
        self._lost = ""
        self._integer: int | None = None  # what stands for integers from data, once a peak did not depend on it
        self._nonce = secrets.token_hex(8)
        self._marker = f"dry-run-{secrets.token_hex(8)}"
        self._child: subprocess.Popen[bytes] | None = None
        self._logs: list[CappedLog] = []

    def __enter__(self) -> DryRun:
        # Resolved: the system's folder for temporary files may be a link.
        self._scratch = Path(tempfile.mkdtemp(prefix="watcherml-dry-run-")).resolve()
        try:
            self._start()
        except OSError as error:
            self._lost = f"its process could not be started: {error.strerror}"
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            kill_all(self._marker)
            if self._child.stdin is not None:
                self._drop(self._child.stdin)
        for log in self._logs:
            log.finish()
        shutil.rmtree(self._scratch, ignore_errors=True)

    @staticmethod
    def _drop(stream: Any) -> None:
        try:
            stream.close()
        except OSError:
            pass  # its reader is gone

    def _start(self) -> None:
        # Not where the entrypoint is told to write: the logs are ours.
        self._work = self._scratch / "work"
        self._work.mkdir()
        environment = {
            **child_environment(),
            MARKER: self._marker,
            GUARD: str(os.getpid()),
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "passive",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(self._work),
            "WATCHERML_DIR": str(self._work / "store"),
            OUTPUTS: str(self._work / "outputs"),
            "WANDB_MODE": "disabled",
            "HF_HUB_OFFLINE": "1",
        }
        self._child = subprocess.Popen(
            [self._python, "-m", "watcherml.trials.dry_run_child"],
            cwd=self._work,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **new_session_options(),
        )
        self._stderr = self._scratch / "stderr.log"
        self._logs = [
            CappedLog(self._child.stdout, self._scratch / "stdout.log", _LOG_BYTES),
            CappedLog(self._child.stderr, self._stderr, _LOG_BYTES),
        ]

    def open(
        self, entrypoint: TrainingEntrypoint, project_root: str | os.PathLike[str], secrets: Mapping[str, str] = {}
    ) -> str:
        """Have the child import the entrypoint; returns why it could not, or an empty text.

        ``secrets`` maps redacted paths of the configurations to ``env:NAME``, as trials get them.
        """
        self._deadline = time.monotonic() + self._timeout
        self._send(
            {
                "scratch": str(self._work),
                "nonce": self._nonce,
                "project_root": str(resolved_root(project_root)),
                "target": entrypoint.target,
                "working_directory": entrypoint.working_directory,
                "secrets": dict(secrets),
            }
        )
        found = self._wait(0)
        if not self._lost and found.get("reason"):
            self._lost = str(found["reason"])
        return self._lost

    def ask(self, config: Any, environment: Mapping[str, str] = {}, *, operators: int | None = None) -> Answer:
        """Return the predicted peak of a configuration, whose whole floats are floats.

        ``operators`` limits the work on it. Once the child is gone or out of time, every answer is that reason. Where
        training computes an integer from data, the first configurations are asked twice, with two made-up integers,
        until a peak is the same for both; the later ones, of the same code, once.
        """
        self._number += 1
        self._send(
            {
                "number": self._number,
                "config": config,
                "environment": dict(environment),
                "operators": operators,
                "integer": self._integer,
            }
        )
        found = self._wait(self._number)
        if self._lost:
            return Answer(None, self._lost)
        if "peak_bytes" not in found:
            return Answer(None, str(found["reason"]))
        self._integer = found.pop("integer")
        return Answer(**found)

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._lost or self._child is None or self._child.stdin is None:
            return
        try:
            self._child.stdin.write(json.dumps(message).encode() + b"\n")
            self._child.stdin.flush()
        except OSError:
            pass  # it has ended; waiting for its answer says how

    def _wait(self, number: int) -> dict[str, Any]:
        path = answer_path(self._work, self._nonce, number) if not self._lost else None
        while path is not None and not self._lost and self._child is not None:
            ended = self._child.poll()
            if path.exists():
                found: dict[str, Any] = json.loads(path.read_text("utf-8"))
                return found
            if ended is not None:
                self._lost = self._how_it_ended(ended)
            elif time.monotonic() > self._deadline:
                self._lost = f"the prediction took longer than {self._timeout:g} s"
            else:
                time.sleep(_POLL_SECONDS)
        return {"reason": self._lost}

    def _how_it_ended(self, code: int) -> str:
        for log in self._logs:
            log.finish()
        self._logs = []
        tail = self._stderr.read_text("utf-8", "replace").strip().splitlines()[-1:]
        how = f"by {signal_name(-code)}" if code < 0 else f"with exit code {code}"
        return f"the process that predicts ended {how}" + (f" ({redact_text(tail[0])[:200]})" if tail else "")


def predict(
    entrypoint: TrainingEntrypoint,
    project_root: str | os.PathLike[str],
    candidates: Iterable[tuple[Any, Mapping[str, str]]],
    *,
    python: str | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> tuple[Answer, ...]:
    """Return the answer for each (configuration, environment), in one child process."""
    with DryRun(python=python, timeout_seconds=timeout_seconds) as dry:
        dry.open(entrypoint, project_root)
        return tuple(dry.ask(config, environment) for config, environment in candidates)
