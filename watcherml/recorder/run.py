"""``Run``: one recorded experiment, from start to its ending."""

from __future__ import annotations

import atexit
import math
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

from watcherml.errors import InvalidValue, RunError
from watcherml.platform import this_process
from watcherml.recorder import dataset, environment, framework, ids, jsonable, machine, receipt, redact, source
from watcherml.recorder.sampler import Sampler
from watcherml.sealed.device import Device
from watcherml.simulated import active as simulated_registry
from watcherml.store.journal import open_spool
from watcherml.store.runs import NewRun
from watcherml.store.storage import Storage

T = TypeVar("T")
# Called with the run and the exception when training fails; makes the capsule. Bound by the api layer.
FailurePort = Callable[["Run", BaseException], None]

_METRIC_NAME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,256}")
_MAX_STEP = 2**53 - 1
_GATHER_TIMEOUT_SECONDS = 20.0


class Run:
    """A recorded run. Use it as a context manager, or call ``start`` and later ``finish``.

    ``config`` may hold anything; what is not JSON is converted and its path marked. Errors of the recording itself
    become one warning and never reach training; wrong arguments of the caller raise ``InvalidValue``.
    """

    def __init__(
        self,
        project: str | None = None,
        config: Any = None,
        storage: Storage | str | os.PathLike[str] | None = None,
        *,
        on_failure: FailurePort | None = None,
        role: str = "user",
        run_id: str | None = None,
        campaign_id: str | None = None,
        trial_id: str | None = None,
        quiet: bool = False,
    ) -> None:
        self.storage = storage if isinstance(storage, Storage) else Storage(storage)
        if project is not None and not isinstance(project, str):
            raise InvalidValue("project", expected="a name", got=f"{project!r:.80} ({type(project).__name__})")
        # A folder's name may hold bytes that are no UTF-8.
        name = (project or Path.cwd().name or "project")[:400]
        self.project = name.encode("utf-8", "replace").decode("utf-8")
        converted, self.lossy_paths = jsonable.to_jsonable({} if config is None else config)
        if not isinstance(converted, dict):
            raise InvalidValue("config", expected="a mapping of names to values", got=type(config).__name__)
        self.config, self.redacted_paths = redact.redact_config(converted)
        self.run_id = run_id or ids.new_id(self.project, self.storage.clock())
        self.status = "new"
        self.entered = False  # whether a `with` will end it
        self.last_step: int | None = None
        self.logging_gap = 0
        self.last_metrics: dict[str, float] = {}
        self.dataset_path: str | None = None
        self._device: Device | None = None
        self._device_before: object = None
        self.problems: list[str] = []
        self._role, self._campaign_id, self._trial_id = role, campaign_id, trial_id
        self._on_failure = on_failure
        self._quiet = quiet
        self._spool = open_spool(self.storage.runs.spool_folder, self.run_id, self.storage.database.plain)
        self._clock = self.storage.clock
        self._owner = os.getpid()
        self._sampler = Sampler(self._deliver, self._failed, self.storage.clock)
        self._gathering: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<Run {self.run_id} {self.status}>"

    # -- life -----------------------------------------------------------------------------------------------

    def start(self) -> Run:
        """Put the run on record and start sampling; raises ``RunError`` if it was started before."""
        if self.status != "new":
            raise RunError(f"run {self.run_id} cannot start", expected="a new run", got=f"one that is {self.status}")
        self.status = "running"
        self._device_before = simulated_registry.last()
        device = framework.device_here()
        self._device = None if device.kind == "none" else device
        self._safely(
            lambda: self.storage.runs.add(
                NewRun(
                    self.run_id,
                    self.project,
                    self._role,
                    self.storage.clock(),
                    this_process(),
                    self.config,
                    self.lossy_paths,
                    self.redacted_paths,
                    None if device.kind == "none" else device.to_data(),
                    self._campaign_id,
                    self._trial_id,
                )
            )
        )
        self._gathering = threading.Thread(target=self._gather, args=(Path.cwd(),), name="watcherml-facts", daemon=True)
        self._gathering.start()
        self._sampler.start()
        atexit.register(self._at_exit)
        return self

    def finish(self) -> None:
        """End the run as a success and print its receipt; calling it again changes nothing."""
        if self.status == "running":
            self._close("success", "")
            made = self._safely(self._receipt)
            if made is not None and not self._quiet:
                print(f"WatcherML recorded this run.\n{receipt.text(made)}")  # noqa: T201 - the receipt is its output

    def fail(self, error: BaseException) -> None:
        """End the run with an exception: failed, interrupted for KeyboardInterrupt, success for ``sys.exit(0)``.

        The exception is not changed and not raised.
        """
        if self.status != "running":
            return
        if isinstance(error, SystemExit) and error.code in (None, 0):
            self._close("success", "sys.exit(0)")
        elif isinstance(error, (KeyboardInterrupt, GeneratorExit)):
            self._close("interrupted", type(error).__name__)
        else:
            self.record_failure(error)
            self._close("failed", f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins."))

    def interrupt(self, reason: str, status: Literal["interrupted", "failed"] = "interrupted") -> None:
        """End a run that did not finish, for example because another one took its place.

        ``failed`` is for a run whose failure has been recorded and whose exception is gone.
        """
        if self.status == "running":
            self._close(status, reason)

    def record_failure(self, error: BaseException) -> None:
        """Capture the evidence of a failure without ending the run."""
        self.join_facts()
        self._note_device()
        if self._on_failure is not None:
            port = self._on_failure
            self._safely(lambda: port(self, error))
        else:
            facts = {"type": type(error).__qualname__, "message": redact.redact_text(str(error))[:10_000]}
            self._safely(lambda: self.storage.runs.note(self.run_id, {"failure": facts}))

    def __enter__(self) -> Run:
        self.entered = True
        return self.start() if self.status == "new" else self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
        else:
            self.fail(error)

    # -- what training says -----------------------------------------------------------------------------------

    def log_metric(self, name: str, value: Any, step: int | None = None) -> None:
        """Store one number. ``value`` may be a Python, numpy or 0-dim torch number, NaN and infinity included.

        Raises ``InvalidValue`` naming the metric if the name, value or step is of the wrong kind.
        """
        # This is the one call that a training loop makes at every step: the usual case goes straight through.
        try:
            key = self._spool.keys.get(name)
        except TypeError:  # an unhashable name is no text either
            key = None
        if key is None:
            key = self._new_name(name)
        if type(value) is not float:
            value = as_number(value, f"metric {name!r}")
        if step is not None:
            last = self.last_step
            if type(step) is int and last is not None and last < step <= _MAX_STEP:
                if step - last > self.logging_gap:
                    self.logging_gap = step - last
                self.last_step = step
            else:
                step = self._step(step)
        self.last_metrics[name] = value
        try:
            if key is not None:
                self._spool.put(key, value, step, self._clock())
        except Exception as error:  # noqa: BLE001 - recording must never end training
            self._failed(error)

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Store a dictionary of numbers at one step."""
        if not isinstance(metrics, Mapping):
            raise InvalidValue("metrics", expected="a mapping of names to numbers", got=type(metrics).__name__)
        for name, value in metrics.items():
            self.log_metric(name, value, step)

    def set_dataset(self, path: str | os.PathLike[str]) -> str:
        """Fingerprint a file or folder, attach it to the run and return ``sha256:<hex>``.

        Raises ``InvalidValue`` if the path is missing or holds no file.
        """
        facts = dataset.fingerprint(path)
        self.dataset_path = str(Path(path).expanduser().absolute())
        self._safely(lambda: self.storage.runs.note(self.run_id, {"dataset": {**facts, "path": self.dataset_path}}))
        return str(facts["fingerprint"])

    def log_artifact(self, path: str | os.PathLike[str]) -> None:
        """Record a reference to a file with its size and SHA-256; the bytes stay where they are.

        Raises ``InvalidValue`` if the path is no file.
        """
        if not Path(path).is_file():
            raise InvalidValue("artifact", expected="an existing file", got=str(path)[:300])
        size, content = dataset.hash_file(path)
        self._safely(
            lambda: self.storage.runs.add_artifact(
                self.run_id, str(Path(path).absolute()), size, f"sha256:{content}", self.storage.clock()
            )
        )

    # -- inside -----------------------------------------------------------------------------------------------

    def join_facts(self) -> None:
        """Wait until git and packages have been collected."""
        if self._gathering is not None and self._owner == os.getpid():
            self._gathering.join(_GATHER_TIMEOUT_SECONDS)

    def _new_name(self, name: Any) -> int | None:
        """Return the key of a name that is used for the first time; None if it could not be stored."""
        if not isinstance(name, str) or not _METRIC_NAME.fullmatch(name):
            raise InvalidValue("metric name", expected="1 to 256 printable characters", got=repr(name)[:80])
        return self._safely(lambda: self._spool.key_of(name))

    def _step(self, step: Any) -> int:
        number = as_number(step, "step")
        if not 0 <= number <= _MAX_STEP or number != int(number):  # the first also refuses NaN
            raise InvalidValue("step", expected="a whole number from 0 to 2**53 - 1", got=repr(step)[:80])
        found = int(number)
        if self.last_step is not None and found > self.last_step:
            self.logging_gap = max(self.logging_gap, found - self.last_step)
        self.last_step = found if self.last_step is None else max(self.last_step, found)
        return found

    def _close(self, status: str, reason: str) -> None:
        if self._owner != os.getpid():
            return  # a forked child does not end its parent's run
        self.status = status
        self._sampler.stop()
        self._safely(self._note_device)
        self._safely(lambda: self._deliver(self._sampler.sample()))
        self.join_facts()
        self._spool.close()
        atexit.unregister(self._at_exit)
        self._safely(
            lambda: self.storage.runs.end(self.run_id, status, reason[:400], self.storage.clock(), self.last_step)
        )

    def _note_device(self) -> None:
        """Put on record which device the run used, also one that was entered after it started."""
        if self._device is not None:
            return
        found = framework.device_here()
        used = simulated_registry.last()
        if used is not None and used is not self._device_before and used.budget_bytes is not None:
            found = Device("simulated", used.device_id, used.budget_bytes)
        if found.kind != "none":
            self._device = found
            self.storage.runs.note(self.run_id, {}, found.to_data())

    def _receipt(self) -> dict[str, Any]:
        row = self.storage.runs.get(self.run_id)
        summary = [one for one in self.storage.runs.samples(self.run_id) if one["device_allocated_bytes"] is not None]
        peak = max((one["device_reserved_bytes"] or one["device_allocated_bytes"] for one in summary), default=None)
        made = receipt.make(row, self.last_metrics, peak)
        self.storage.runs.note(self.run_id, {"receipt": made})
        return made

    def _gather(self, folder: Path) -> None:
        def gather() -> None:
            state = source.collect(folder)
            facts: dict[str, Any] = {
                "git": dict(state.facts),
                "environment": environment.collect(),
                "machine": machine.collect(),
                "argv": [redact.redact_text(word) for word in machine.argv()],
                "working_directory": str(folder),
            }
            if state.patch:
                text = state.patch.decode("utf-8", "surrogateescape")
                cleaned = redact.redact_text(text)
                changed = sum(a != b for a, b in zip(text.splitlines(), cleaned.splitlines(), strict=False))
                data = cleaned.encode("utf-8", "surrogateescape")
                facts["git"]["patch"] = self.storage.evidence.put_blob(data, "text/x-diff")
                facts["git"]["patch_is"] = "exact" if cleaned == text else f"{changed} lines redacted"
            self.storage.runs.note(self.run_id, facts)

        self._safely(gather)

    def _deliver(self, sample: dict[str, Any]) -> None:
        self._note_device()
        self.storage.runs.beat(self.run_id, sample["at"], self.last_step, sample)

    def _safely(self, action: Callable[[], T]) -> T | None:
        try:
            return action()
        except Exception as error:  # noqa: BLE001 - recording must never end training
            self._failed(error)
            return None

    def _failed(self, error: Exception) -> None:
        self.problems.append(f"{type(error).__name__}: {error}")
        if len(self.problems) == 1:
            try:
                warnings.warn(
                    f"WatcherML could not record part of run {self.run_id}: {error}. Training goes on;"
                    " further problems are counted in run.problems.",
                    RuntimeWarning,
                    stacklevel=3,
                )
            except Warning:
                pass  # the user turned warnings into errors; ours must still not end training

    def _at_exit(self) -> None:
        if self.status != "running" or self._owner != os.getpid():
            return
        # The interpreter keeps an uncaught exception here after printing it.
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if isinstance(error, BaseException) and "ipykernel" not in sys.modules:
            self.fail(error)
        else:
            self.interrupt("the process ended without finish()")


def as_number(value: Any, what: str) -> float:
    """Return a Python, numpy or 0-dim torch number as float; ``InvalidValue`` for anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    item = getattr(value, "item", None)
    if callable(item) and not isinstance(value, bool) and getattr(value, "ndim", None) == 0:
        number = item()
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            return float(number)
    raise InvalidValue(what, expected="a number", got=f"{value!r:.80} ({type(value).__name__})")
