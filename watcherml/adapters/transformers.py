"""Hugging Face Trainer: a callback that records, a context that also catches, and help for a training function.

A callback of the Trainer is never told of an exception. What ends training is therefore caught by ``watch(trainer)``
or by using the callback as a context; without either, by the notebook extension when the cell fails, or at the end of
the script. In each of these ways the run is failed and has a capsule.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from watcherml.adapters.recording import Recording, harmless
from watcherml.adapters.transformers_config import configuration as configuration
from watcherml.adapters.transformers_config import training_arguments as training_arguments
from watcherml.errors import MissingDependency
from watcherml.recorder.phase import phase
from watcherml.recorder.run import Run
from watcherml.store.storage import Storage

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise MissingDependency(
        "watcherml.adapters.transformers",
        expected="transformers in this environment",
        got=str(error),
        remedy="Install it with: pip install transformers accelerate",
    ) from error

# Methods of a Trainer that are a phase of their own; what is missing in a version is passed over.
_PHASES = {
    "evaluate": "evaluation",
    "predict": "evaluation",
    "_save_checkpoint": "checkpoint",
    "save_model": "checkpoint",
}
# Of what a Trainer logs, what is no measure of the model.
_COUNTS = {"epoch", "step", "total_flos", "num_input_tokens_seen"}
_TIMING = ("_runtime", "_per_second", "_preparation_time")


class WatcherCallback(TrainerCallback):
    """Records ``trainer.train()``: configuration, the Trainer's logs at their global step, and every step.

    It records into the run that is open, else into one of its own, which ends as a success with the training.
    ``config`` is added to what the arguments and the model say (see ``configuration``) and wins; ``project`` and
    ``storage`` are those of ``watcherml.init``. As a context it catches what ends training::

        with WatcherCallback("bert") as callback:
            Trainer(model, args, train_dataset=data, callbacks=[callback]).train()
    """

    def __init__(
        self,
        project: str | None = None,
        config: Mapping[str, Any] | None = None,
        storage: Storage | str | os.PathLike[str] | None = None,
    ) -> None:
        self.recording = Recording(project, config, storage)
        self.recording.loop = "_inner_training_loop"

    @property
    def run(self) -> Run | None:
        """The run that is recorded into, None before training starts."""
        return self.recording.run

    def __enter__(self) -> WatcherCallback:
        self.recording.hold(True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.recording.hold(False)
        self.close(error)

    @harmless
    def open(self, args: Any, model: Any) -> None:
        """Start recording before the training starts; the Trainer does it otherwise."""
        self.recording.open(configuration(args, model))

    @harmless
    def close(self, error: BaseException | None = None) -> None:
        """End the run if it is the callback's own: as a success, or with the exception that ended training."""
        if error is None:
            self.recording.finish()
        else:
            self.recording.fail(error)

    @harmless
    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Open the run, unless a surrounding context has."""
        run = self.recording.run
        if self.recording.held and run is not None and run.status == "running":
            return
        self.recording.open(configuration(args, model, state.train_batch_size))

    @harmless
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the step."""
        self.recording.step(state.global_step, state.epoch)

    @harmless
    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        """Log the numbers of the Trainer, of training and evaluation, at their global step."""
        self.recording.log({name: value for name, value in (logs or {}).items() if name != "epoch"}, state.global_step)

    @harmless
    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the run, unless a surrounding context will."""
        if not self.recording.held:
            self.recording.finish()


@contextmanager
def watch(
    trainer: Any,
    project: str | None = None,
    config: Mapping[str, Any] | None = None,
    storage: Storage | str | os.PathLike[str] | None = None,
) -> Iterator[Run | None]:
    """Record everything that a Trainer does in this block, and end the run with the exception that leaves it.

    Yields the run. Evaluation, prediction and saving are phases, so that a failure in them says so. The Trainer is left
    as it was, and the exception passes unchanged. Arguments are those of ``WatcherCallback``.
    """
    callback = WatcherCallback(project, config, storage)
    trainer.add_callback(callback)
    with _phases(trainer):
        try:
            with callback:
                callback.open(trainer.args, trainer.model)
                yield callback.run
        finally:
            trainer.remove_callback(callback)


def returned_metrics(trainer: Any) -> dict[str, float]:
    """Return what a training function hands to a recovery: ``steps_completed`` and the last value of each metric.

    Taken from the Trainer's log: ``loss``, ``train_loss``, ``eval_loss`` and the like, finite ones only, without
    timings.
    """
    found: dict[str, float] = {}
    for entry in trainer.state.log_history:
        for name, value in entry.items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if number and math.isfinite(value) and name not in _COUNTS and not name.endswith(_TIMING):
                found[name] = float(value)
    return {**found, "steps_completed": float(trainer.state.global_step)}


@contextmanager
def _phases(trainer: Any) -> Iterator[None]:
    ours: dict[str, Any] = {}
    for name, stands_for in _PHASES.items():
        own = getattr(trainer, name, None)
        if callable(own) and name not in vars(trainer):
            ours[name] = _as_phase(own, stands_for)
            setattr(trainer, name, ours[name])
    try:
        yield
    finally:
        for name, method in ours.items():
            if vars(trainer).get(name) is method:
                delattr(trainer, name)


def _as_phase(method: Any, name: str) -> Any:
    @functools.wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        with phase(name):
            return method(*args, **named)

    return call
