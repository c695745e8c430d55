"""What the callbacks of trainers share: the run that they record into, and the promise not to harm training."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from watcherml.api import controls, data, record
from watcherml.errors import InvalidValue
from watcherml.recorder import run as recorder
from watcherml.recorder.jsonable import to_jsonable
from watcherml.store.storage import Storage

Method = TypeVar("Method", bound=Callable[..., Any])
SUPERSEDED = "the training before this one did not come to its end"
UNENDED = "the training did not come to its end, and the script went on"


class _Own:
    """What is known of a run that a callback opened, also when the callback is gone."""

    def __init__(self) -> None:
        self.held = False
        self.frame = 0


# A run that died with its training is nobody's to use.
_owners: weakref.WeakKeyDictionary[recorder.Run, _Own] = weakref.WeakKeyDictionary()


def harmless(method: Method) -> Method:
    """Make a method of a callback, whose ``recording`` is told of its errors: training never meets them."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        try:
            return method(self, *args, **named)
        except Exception as error:  # noqa: BLE001 - recording must never end training
            self.recording.complain(error)
            return None

    return call  # type: ignore[return-value]


class Recording:
    """The run of one callback: one that is open already, else one of its own.

    ``owned`` says whether the callback opened the run and will end it, ``held`` whether a context around the training
    will, ``loop`` is the function that trains where its library tells nobody of an exception. In a trial of a recovery
    it is the trial's run.
    """

    def __init__(
        self, project: str | None, config: Mapping[str, Any] | None, storage: Storage | str | os.PathLike[str] | None
    ) -> None:
        self.run: recorder.Run | None = None
        self.owned = False
        self.loop = ""
        self._own = _Own()
        self._project, self._storage = project, storage
        self._config = _mapping(config)
        self._step = 0
        self._warned = False

    @property
    def held(self) -> bool:
        """Whether a context around the training will end the run."""
        return self._own.held

    def hold(self, held: bool) -> None:
        """Note that a context around the training was entered or left."""
        self._own.held = held

    def open(self, found: Mapping[str, Any]) -> None:
        """Start recording with what was found of the configuration; a run of ours that is open still is ended."""
        if self.run is not None and self.run.status == "running":
            if not self.owned:
                return
            _supersede(self.run)
        self._step = 0
        loops = _loops(self.loop)
        self._own.frame = loops[0] if loops else 0
        there = _open_run(loops[1:])
        self.owned = there is None
        self.run = there or self._start(found)
        if self.owned:
            _owners[self.run] = self._own
        if there is not None and there.role == "user" and not there.config:
            self._warn(
                f"run {there.run_id} was opened without a configuration, so that a recovery will find nothing to"
                " change: open it with watcherml.init(config=configuration(...)) of this adapter, or leave the opening"
                " to the callback"
            )

    def _start(self, found: Mapping[str, Any]) -> recorder.Run:
        # A person's configuration may be anything that a run accepts; here it is only looked at as plain data.
        own = to_jsonable(self._config)[0]
        kept = controls.complete(own, found)
        config = {**{key: value for key, value in kept.items() if key not in own}, **self._config}
        run = record.Run(self._project, config, self._storage)
        run.unended = UNENDED  # the trainer would have told of a good end
        return run.start()

    def step(self, step: int, epoch: float | None) -> None:
        """Note that so many optimizer steps are done, so that a failure knows its step whatever was logged."""
        if self.run is not None and step > self._step:
            self._step = step
            self.run.log_metric("epoch", float(epoch or 0.0), step=step)

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Log what is a number under its own name; a tensor of one element is one."""
        if self.run is None:
            return
        for name, value in metrics.items():
            try:
                number = value.item() if callable(getattr(value, "item", None)) and _is_single(value) else value
                if isinstance(number, (int, float)) and not isinstance(number, bool):
                    self.run.log_metric(str(name), number, step=step)
            except Exception as error:  # noqa: BLE001 - a name that a run does not take costs this metric and no other
                self.complain(error)

    def finish(self) -> None:
        """End an own run as a success."""
        if self.run is not None and self.owned:
            self.run.finish()

    def fail(self, error: BaseException) -> None:
        """End an own run with an exception; an open run of a person's ends by its own ``with``, hook or finish."""
        if self.run is not None and self.owned:
            self.run.fail(error)

    def complain(self, error: Exception) -> None:
        """Tell an error of the recording, the first one only."""
        self._warn(f"training goes on, its recording is incomplete: {type(error).__name__}: {error}")

    def _warn(self, text: str) -> None:
        if self._warned:
            return
        self._warned = True
        # Warnings may have been turned into errors, and a hook of the user's may raise anything.
        with contextlib.suppress(Exception):
            warnings.warn(f"watcherml: {text}"[:2_000], RuntimeWarning, stacklevel=5)


def _mapping(config: Any) -> dict[str, Any]:
    """Return a person's configuration as a mapping; raises ``InvalidValue`` for what is none."""
    found = config if isinstance(config, Mapping) else to_jsonable({} if config is None else config)[0]
    if not isinstance(found, Mapping):
        raise InvalidValue("config", expected="a mapping of names to values", got=type(config).__name__)
    return dict(found)


def _open_run(training: Sequence[int]) -> recorder.Run | None:
    """Return the run to record into: the trial's, else the newest of a person's or of a context around the training.

    ``training`` are the frames of trainings that this one goes on inside of. Another callback's run whose training is
    not among them has died with it.
    """
    trials = [run for run in recorder.open_here() if run.role == "trial"]
    if trials:
        return trials[-1]
    found = None
    for run in record.open_runs():
        owner = _owners.get(run)
        if owner is None or owner.held:
            found = run
        elif owner.frame and owner.frame not in training and run.thread == threading.get_ident():
            _supersede(run)
    return found


def _supersede(run: recorder.Run) -> None:
    """End a run whose training was left by an exception that nobody handed on; a capsule may be on record."""
    failed = data.capsule(run.storage, run.run_id) is not None
    run.interrupt(SUPERSEDED, "failed" if failed else "interrupted")


def _loops(name: str) -> list[int]:
    """Return the frames of this thread that run a function of this name, innermost first, by their addresses."""
    found = []
    frame = sys._getframe(1) if name else None
    while frame is not None:
        if frame.f_code.co_name == name:
            found.append(id(frame))
        frame = frame.f_back
    return found


def _is_single(value: Any) -> bool:
    size = getattr(value, "numel", None) or getattr(value, "size", 1)
    return bool((size() if callable(size) else size) == 1)
