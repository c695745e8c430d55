"""``Run``: one recorded experiment, from start to its ending."""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Literal, TypeVar

from watcherml.errors import InvalidValue, RunError
from watcherml.platform import expanded
from watcherml.recorder import artifacts, dataset, exits, gather, ids, jsonable, life, ranks, redact
from watcherml.recorder import receipt as receipts
from watcherml.recorder.device_memory import MemoryLog
from watcherml.recorder.following import Following
from watcherml.recorder.host_memory import HostWatch
from watcherml.recorder.numbers import as_number as as_number
from watcherml.recorder.numbers import shown
from watcherml.recorder.recording import Recording
from watcherml.store.database import locate
from watcherml.store.journal import open_spool
from watcherml.store.storage import Storage

T = TypeVar("T")
# Called with the run and the exception when training fails; makes the capsule. Bound by the api layer.
FailurePort = Callable[["Run", BaseException], None]

_METRIC_NAME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,256}")
_MAX_STEP = 2**53 - 1
# Runs of this process by id: a run that is pickled and comes back here is the same run.
_here: weakref.WeakValueDictionary[str, Run] = weakref.WeakValueDictionary()


class Run:
    """A recorded run. Use it as a context manager, or call ``start`` and later ``finish``.

    ``config`` may hold anything; what is not JSON is converted and its path marked. Errors of the recording itself
    become one warning and never reach training; wrong arguments of the caller raise ``InvalidValue``.

    The process that starts a run records it. A forked or spawned child that was given the run adds metrics to it and
    nothing else; in a job of several ranks, rank 0 records and the others attach their failure.
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
        self.storage = gather.storage(storage)
        if project is not None and not isinstance(project, str):
            raise InvalidValue("project", expected="a name", got=f"{project!r:.80} ({type(project).__name__})")
        # A folder's name may hold bytes that are no UTF-8.
        name = (project or gather.folder().name or "project")[:400]
        self.project = redact.redact_text(name.encode("utf-8", "replace").decode("utf-8"))
        converted, lossy_paths = jsonable.to_jsonable({} if config is None else config)
        self.lossy_paths = [redact.redact_text(path) for path in lossy_paths]
        if not isinstance(converted, dict):
            raise InvalidValue("config", expected="a mapping of names to values", got=type(config).__name__)
        self.config, self.redacted_paths = redact.redact_config(converted)
        self.run_id = run_id or ids.new_id(self.project, self.storage.clock())
        self.status = "new"
        self.entered = False  # whether a `with` will end it
        self.thread = 0  # the identity of the thread that started it
        self.last_step: int | None = None
        self.logging_gap = 0
        self.last_metrics: dict[str, float] = {}
        self.dataset_path: str | None = None
        self.role, self.campaign_id, self.trial_id = role, campaign_id, trial_id
        self.quiet = quiet
        self.unended = ""  # why a run that nobody has ended by the end of the script was interrupted; else it succeeded
        self._on_failure = on_failure
        self._owner = os.getpid()
        self._clock = self.storage.clock
        self._problems = life.Problems(self.run_id)
        self._safely, self._failed = self._problems.safely, self._problems.note
        self._spool: life.AnySpool = open_spool(
            self.storage.runs.spool_folder, self.run_id, self.storage.database.plain
        )
        self._recording = Recording(self, self._problems)
        self._sampler = self._recording.sampler
        self._following: Following | None = None
        self._ending = threading.Lock()  # taken once
        self._exits = exits.Watch(self._at_exit, self._at_worker_exit)
        _here[self.run_id] = self

    def __repr__(self) -> str:
        return f"<Run {self.run_id} {self.status}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # What a worker of another process is given writes its own metrics; a copy in this process is the run itself.
        return _given, (type(self), self.run_id, self.project, self.config, str(self.storage.path))

    @property
    def problems(self) -> list[str]:
        """What could not be recorded: the first thousand reasons and the last; ``problem_count`` counts them all."""
        return self._problems.texts

    @property
    def problem_count(self) -> int:
        """How often something could not be recorded."""
        return self._problems.count

    @property
    def memory(self) -> MemoryLog:
        """What the training's device held while this run went on, as far as this process saw it."""
        return self._recording.memory

    @property
    def host(self) -> HostWatch | None:
        """What happened to this process' children and host memory since the start; None before it."""
        return self._recording.host

    # -- life -----------------------------------------------------------------------------------------------

    def start(self) -> Run:
        """Put the run on record and start sampling; raises ``RunError`` if it was started before."""
        if self.status != "new":
            raise RunError(f"run {self.run_id} cannot start", expected="a new run", got=f"one that is {self.status}")
        self.status, self.thread = "running", threading.get_ident()
        place = self._safely(ranks.here) if self.role == "user" else None
        if place is not None and place.rank > 0:
            self._follow(place)
        else:
            self._recording.start(place)
        self._safely(self._exits.start)
        return self

    def finish(self) -> None:
        """End the run as a success and print its receipt; calling it again changes nothing."""
        self._end("success", "")

    def fail(self, error: BaseException) -> None:
        """End the run with an exception: failed, interrupted for KeyboardInterrupt, success for ``sys.exit(0)``.

        The exception is not changed and not raised.
        """
        if self.status != "running" or not self._mine:
            return
        status, reason = life.judge(error)
        try:
            if status == "failed":
                self.record_failure(error)
        finally:  # also if somebody presses Ctrl-C meanwhile
            self._end(status, reason)

    def interrupt(self, reason: str, status: Literal["interrupted", "failed"] = "interrupted") -> None:
        """End a run that did not finish, for example because another one took its place.

        ``failed`` is for a run whose failure has been recorded and whose exception is gone.
        """
        self._end(status, reason)

    def record_failure(self, error: BaseException) -> None:
        """Capture the evidence of a failure without ending the run; does nothing in a child that was given it."""
        if not self._mine:
            return
        self._safely(self.memory.note_failure)
        following = self._following
        if following is not None:
            self._safely(lambda: following.attach_failure(error))
        self._safely(self.join_facts)
        self._recording.briefly(self._recording.ensure_row)
        self._recording.briefly(self._recording.note_device)
        self._recording.briefly(self._recording.sample_failure)
        if self._on_failure is not None:
            port = self._on_failure
            self._recording.briefly(lambda: port(self, error))
        else:
            self._recording.briefly(lambda: self.storage.runs.note(self.run_id, {"failure": life.failure_facts(error)}))

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
        except Exception:  # noqa: BLE001 - an unhashable name is no text either; a text's own code may raise as well
            key = None
        if key is None:
            name, key = self._new_name(name)
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
        """Store a mapping of names to numbers at one step; raises ``InvalidValue`` for anything but a mapping."""
        if not isinstance(metrics, Mapping):
            raise InvalidValue("metrics", expected="a mapping of names to numbers", got=type(metrics).__name__)
        for name, value in metrics.items():
            self.log_metric(name, value, step)

    def set_dataset(self, path: str | os.PathLike[str]) -> str:
        """Fingerprint a file or folder, attach it to the run and return ``sha256:<hex>``.

        Raises ``InvalidValue`` if the path is missing or holds no file. Returns an empty text, and counts a problem, if
        the system does not let it be read to the end for other reasons.
        """
        try:
            facts = dataset.fingerprint(path)
        except InvalidValue:
            raise
        except Exception as error:  # noqa: BLE001 - recording must never end training
            self._failed(error)
            return ""
        self.dataset_path = redact.redact_text(str(expanded(path).absolute()))
        noted = {"dataset": {**facts, "path": self.dataset_path}}
        self._write("a dataset", lambda: self.storage.runs.note(self.run_id, noted))
        return str(facts["fingerprint"])

    def log_artifact(self, path: str | os.PathLike[str]) -> None:
        """Record a reference to a file or folder with its size and SHA-256; the bytes stay where they are.

        A large one is hashed in the background while training goes on. The same path again is a new version if it has
        changed. Raises ``InvalidValue`` if there is nothing at the path.
        """
        try:
            found = artifacts.look(path)
        except OSError as error:
            self._failed(error)
            return
        self._write("an artifact", lambda: self._recording.artifacts.log(found))

    # -- inside -----------------------------------------------------------------------------------------------

    @property
    def _mine(self) -> bool:
        """Whether this is the process that started the run, not one that was forked from it or given it."""
        return self._owner == os.getpid()

    def _write(self, what: str, action: Callable[[], object]) -> None:
        """Do it if this process writes the run now; where it does not, that is one of the run's problems."""
        if self._following is not None and self._mine:
            self._following.keep(action)
        elif not self._mine:
            self._failed(RunError(f"{what} was logged by a child process, which adds metrics only"))
        elif self.status == "new":
            self._failed(RunError(f"{what} came before the start of run {self.run_id}"))
        elif self.status != "running":
            self._failed(life.ended(self.run_id, what))
        else:
            self._recording.briefly(action)

    def join_facts(self) -> None:
        """Wait until git and packages have been collected."""
        if self._mine:
            self._recording.briefly(self._recording.join_facts)

    def _new_name(self, name: Any) -> tuple[str, int | None]:
        """Return a name that is used for the first time as it is stored, and its key; None if it could not be."""
        if not isinstance(name, str) or not _METRIC_NAME.fullmatch(name):
            raise InvalidValue("metric name", expected="1 to 256 printable characters", got=shown(name))
        stored = redact.redact_text(str.__str__(name))
        return stored, self._safely(lambda: self._spool.key_of(stored))

    def _step(self, step: Any) -> int:
        number = as_number(step, "step")
        if not 0 <= number <= _MAX_STEP or number != int(number):  # the first also refuses NaN
            raise InvalidValue("step", expected="a whole number from 0 to 2**53 - 1", got=shown(step))
        found = int(number)
        if self.last_step is not None and found > self.last_step:
            self.logging_gap = max(self.logging_gap, found - self.last_step)
        self.last_step = found if self.last_step is None else max(self.last_step, found)
        return found

    def _follow(self, place: ranks.Place) -> None:
        """Attach to the run that rank 0 of this job records; nothing is written there but a failure."""
        self._following = Following(self, self._recording, place, self._safely, self._follow_run, self._go_alone)
        self._safely(self._recording.listen)
        self._following.start()

    def _follow_run(self, run_id: str) -> None:
        self.run_id = self._problems.run_id = run_id
        # Another thread may be writing into the journal, so that it is let go but not closed.
        self._spool = life.SilentSpool()

    def _go_alone(self) -> None:
        self._following = None

    def _end(self, status: life.Ending, reason: str) -> None:
        if self.status != "running" or not self._mine or not self._ending.acquire(blocking=False):
            return
        self.status = status
        self._safely(self._exits.stop)
        following = self._following
        if following is not None:
            self._safely(lambda: following.settle(alone=True))
        if self._following is not None:
            self._safely(self._recording.memory.stop)
            return
        try:
            self._recording.stop(patient=status == "success")
        finally:  # also if a person presses Ctrl-C meanwhile
            spool, self._spool = self._spool, life.EndedSpool(self.run_id)
            self._safely(spool.close)
            self._recording.briefly(lambda: self._recording.end_row(status, reason))
        if status == "success":
            made = self._recording.briefly(self._recording.receipt)
            if made is not None and not self.quiet:
                self._safely(lambda: receipts.show(made))
        elif status == "failed" and self.role == "user" and not self.quiet:
            self._safely(self._tell_failure)

    def _tell_failure(self) -> None:
        if self._on_failure is not None and self.storage.exists:
            receipts.show_failure(self.run_id, self.storage.path, locate())

    def _at_exit(self) -> None:
        if self.status == "running" and self._mine:
            self._end_by(self._exits.ending())

    def _at_worker_exit(self) -> None:
        if self.status == "running" and self._mine:
            self._end_by(exits.worker_ending())

    def _end_by(self, ending: BaseException | str | None) -> None:
        if isinstance(ending, BaseException):
            self.fail(ending)
        elif ending is not None:
            self.interrupt(ending)
        elif self.unended:
            self.interrupt(self.unended)
        else:
            self._end("success", exits.NO_FINISH)


def open_here() -> list[Run]:
    """Return the runs that this process has started and not ended, in the order in which they were made."""
    return [run for run in list(_here.values()) if run.status == "running" and run._mine]


# Runs that this process was given by another one: kept, since a second journal of one process would mix up its names.
_given_here: dict[str, Run] = {}


def _given(kind: type[Run], run_id: str, project: str, config: Any, folder: str) -> Run:
    """Return the run of that id as this process has it: its own, or one that adds metrics to another's."""
    found = _here.get(run_id) or _given_here.get(run_id)
    if found is None:
        found = kind(project, config, folder, run_id=run_id, quiet=True)
        found.status, found._owner = "running", 0
        _given_here[run_id] = found
    return found
