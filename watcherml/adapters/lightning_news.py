"""Which of a Lightning Trainer's metrics are new: its dictionaries keep every name at its last value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class News:
    """What has been told of the metrics of one fit, so that no value is told a second time at a later step.

    ``logged_step`` is the step at which metrics of a training step were told last, ``ended`` the step and the names
    told at the end of an epoch, until what came after that has been told too.
    """

    def __init__(self) -> None:
        self.logged_step = 0
        self.ended: tuple[int, set[str]] | None = None
        self._told: dict[str, Any] = {}

    def is_due(self, trainer: Any, module: Any) -> bool:
        """Whether metrics are told now: every ``log_every_n_steps`` steps, whether one batch makes one step or two."""
        every, step = max(1, int(trainer.log_every_n_steps or 1)), int(trainer.global_step)
        if step == self.logged_step:
            # Batches that accumulate make no step. Optimizers that Lightning does not know of never make one.
            return step == 0 and not getattr(module, "automatic_optimization", True)
        if step // every == self.logged_step // every:
            return False
        self.logged_step = step
        return True

    def of(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that were not told under their names yet."""
        found = {name: value for name, value in metrics.items() if not _is_same(self._told.get(name), value)}
        for name, value in found.items():
            # Detached: a metric that is logged with its graph would keep the memory of its step.
            self._told[name] = value.detach() if callable(getattr(value, "detach", None)) else value
        return found

    def forget(self) -> None:
        """Let go of what was told, so that nothing of the fit is kept on the device."""
        self._told = {}

    def within_epoch(self, trainer: Any) -> dict[str, Any]:
        """Return what is new in the middle of an epoch, without names whose value for the epoch comes at its end."""
        steps = trainer.logged_metrics
        return self.of({name: it for name, it in trainer.callback_metrics.items() if f"{name}_step" not in steps})


def _is_same(told: Any, value: Any) -> bool:
    """Whether two values are one: Lightning hands out a new view of the same storage each time it is asked."""
    if told is value:
        return told is not None
    try:
        return bool(told.untyped_storage()._cdata == value.untyped_storage()._cdata)
    except AttributeError:
        return False
