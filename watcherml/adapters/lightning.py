"""Lightning: a callback that records ``trainer.fit``, and help for a training function.

One class serves ``lightning`` and ``pytorch_lightning``: a Trainer calls the hooks of a callback by their names.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from watcherml.adapters.lightning_news import News
from watcherml.adapters.recording import Recording, harmless
from watcherml.errors import InvalidValue, MissingDependency
from watcherml.recorder.phase import mark
from watcherml.recorder.run import Run
from watcherml.store.storage import Storage


def _base() -> Any:
    """Return the Callback of the package that the program has imported, else of the one that is installed."""
    import importlib

    names = ("lightning.pytorch", "pytorch_lightning")
    reason = ""
    for name in sorted(names, key=lambda one: one not in sys.modules):
        try:
            return importlib.import_module(name).Callback
        except ImportError as error:
            reason = str(error)
    raise MissingDependency(
        "watcherml.adapters.lightning",
        expected="lightning or pytorch_lightning in this environment",
        got=reason,
        remedy="Install it with: pip install lightning",
    )


if TYPE_CHECKING:
    Base = object
else:
    Base = _base()

# Functions of Lightning that write a checkpoint: its hooks tell of the beginning and never of the end.
_SAVING = {"save_checkpoint", "dump_checkpoint"}


class WatcherCallback(Base):
    """Records ``trainer.fit``: configuration, metrics at their global step, every step, and what ended it.

    It records into the run that is open, else into one of its own, which ends with the fit: as a success, or with the
    exception. ``config`` is added to what hyperparameters and Trainer say (see ``configuration``) and wins;
    ``project`` and ``storage`` are those of ``watcherml.init``.
    """

    def __init__(
        self,
        project: str | None = None,
        config: Mapping[str, Any] | None = None,
        storage: Storage | str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        self.recording = Recording(project, config, storage)
        self._evaluating = False
        self._news = News()

    @property
    def run(self) -> Run | None:
        """The run that is recorded into, None before training starts."""
        return self.recording.run

    @harmless
    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Open the run before anything of the fit is built."""
        if stage == "fit":
            self._evaluating = False
            self._news = News()
            self.recording.open(configuration(trainer, pl_module))

    @harmless
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Note where training goes on from: a checkpoint's step, or 0."""
        self._news.logged_step = int(trainer.global_step)

    @harmless
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Note the step; log where Lightning does, since reading a metric waits for the device."""
        self.recording.step(trainer.global_step, float(trainer.current_epoch))
        if self._news.is_due(trainer, pl_module):
            self.recording.log(self._news.of(trainer.logged_metrics), trainer.global_step)

    @harmless
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Log what the module's own end of an epoch logged: it comes after that of a callback."""
        self._log_late(trainer)

    @harmless
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log what an epoch came to."""
        found = self._news.of(trainer.callback_metrics)
        self.recording.log(found, trainer.global_step)
        self._news.ended = (int(trainer.global_step), set(found))

    @harmless
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Log what the last epoch came to after ours."""
        self._log_late(trainer)

    @harmless
    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        """Note that the phase is evaluation now."""
        self._evaluating = True

    on_validation_start = on_sanity_check_start

    @harmless
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Log the validation's metrics; those of the sanity check are none."""
        self._evaluating = False
        if not trainer.sanity_checking:
            self.recording.log(self._news.within_epoch(trainer), trainer.global_step)

    @harmless
    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        """Log the test's metrics, where the run is a person's that goes on after the fit."""
        self.recording.log(self._news.of(trainer.callback_metrics), trainer.global_step)

    @harmless
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the run with the exception, which Lightning raises again."""
        if _was_saving(exception):
            mark(exception, "checkpoint")
        elif self._evaluating:
            mark(exception, "evaluation")
        try:
            if trainer.world_size == 1:  # reading a metric may be a collective, which the other ranks do not join now
                self._log_late(trainer)
        finally:
            self.recording.fail(exception)

    @harmless
    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """End the run as a success."""
        if stage == "fit":
            self.recording.finish()
            self._news.forget()

    def _log_late(self, trainer: Any) -> None:
        ended, self._news.ended = self._news.ended, None
        if ended is not None:
            step, told = ended
            # What was told at the end of this epoch and is new again belongs to the next one.
            late = {name: value for name, value in trainer.callback_metrics.items() if name not in told}
            self.recording.log(self._news.of(late), step)


def configuration(trainer: Any, module: Any = None) -> dict[str, Any]:
    """Return the hyperparameters of module and data module, and beside them what the Trainer was told.

    Of the Trainer: ``precision``, ``accumulate_grad_batches``, ``max_steps``, ``max_epochs``, ``gradient_clip_val``,
    ``devices``, ``strategy``. The batch size is the hyperparameter of that name, else the attribute of module or data
    module, else that of the loader given to ``fit``. A control that a hyperparameter names is taken from there.
    """
    from watcherml.api.controls import complete

    data = getattr(trainer, "datamodule", None)
    own: dict[str, Any] = {}
    for owner in (data, module):
        hparams = getattr(owner, "hparams", None)
        own.update(dict(hparams) if isinstance(hparams, Mapping) else {})
    found: dict[str, Any] = {"model": type(module).__name__} if module is not None else {}
    size = _batch_size(trainer, module, data)
    if size is not None:
        found["batch_size"] = size
    for name in ("precision", "accumulate_grad_batches", "max_steps", "max_epochs", "gradient_clip_val"):
        value = getattr(trainer, name, None)
        if value is not None:
            found[name] = value
    found["devices"] = getattr(trainer, "num_devices", None)
    found["strategy"] = type(getattr(trainer, "strategy", None)).__name__
    return complete(own, found)


def trainer_options(config: Mapping[str, Any], max_steps: int | None = None) -> dict[str, Any]:
    """Return the keywords for a Trainer that a configuration holds, as a training function needs them.

    ``precision``, ``accumulate_grad_batches``, ``max_steps``, ``max_epochs`` and ``gradient_clip_val``, at the top or
    in a section ``trainer``, as LightningCLI and Hydra write it. ``max_steps`` limits the optimizer steps; a smaller
    limit of the configuration stays. Raises ``InvalidValue`` for a limit that is no whole number above 0, and for a key
    that stands in both places with different values: a recovery changes one of them, and nobody can tell which counts.
    """
    if max_steps is not None and (type(max_steps) is not int or max_steps < 1):
        raise InvalidValue("max_steps", expected="a whole number of at least 1, or None", got=repr(max_steps)[:80])
    names = ("precision", "accumulate_grad_batches", "max_steps", "max_epochs", "gradient_clip_val")
    section = config.get("trainer")
    inner = section if isinstance(section, Mapping) else {}
    for name in names:
        if None not in (config.get(name), inner.get(name)) and config[name] != inner[name]:
            raise InvalidValue(f"config.{name}", expected=f"that of trainer.{name}, {inner[name]!r:.80}",
                               got=f"{config[name]!r:.80}", remedy="Keep it in one of the two places.")  # fmt: skip
    found = {name: place[name] for place in (config, inner) for name in names if place.get(name) is not None}
    if max_steps is not None:
        own = int(found.get("max_steps", -1))
        found["max_steps"] = min(max_steps, own) if own > 0 else max_steps
    return found


def returned_metrics(trainer: Any) -> dict[str, float]:
    """Return what a training function hands to a recovery: ``steps_completed`` and each finite metric's last value."""
    found = {name: float(value) for name, value in trainer.callback_metrics.items()}
    finite = {name: value for name, value in found.items() if math.isfinite(value)}
    return {**finite, "steps_completed": float(trainer.global_step)}


def _batch_size(trainer: Any, module: Any, data: Any) -> int | None:
    loop = getattr(trainer, "fit_loop", None)
    # The loader that was given to fit; there is no public name for it before training starts.
    loader = getattr(getattr(loop, "_data_source", None), "instance", None)
    for owner in (data, module, loader):
        size = getattr(owner, "batch_size", None)
        if type(size) is int and size > 0:
            return size
    return None


def _was_saving(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name in _SAVING and "lightning" in code.co_filename:
            return True
        trace = trace.tb_next
    return False
