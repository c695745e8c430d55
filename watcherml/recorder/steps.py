"""Optimizer steps, counted inside a trial by somebody other than the entrypoint's own claim."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from watcherml.recorder.late import when_imported


class StepCounter:
    """Counts ``step()`` marks, the calls of each optimizer, and the calls that a gradient scaler left out.

    An attempt that the scaler skipped for an overflow used the memory of a step, and is one.
    """

    def __init__(self) -> None:
        self.marks = 0
        self.optimizers: Counter[int] = Counter()
        self.watches_optimizers = False
        self._kept: list[Any] = []  # an id is only unique while its optimizer lives

    def hook_torch(self) -> None:
        """Count the steps of every torch optimizer from now on; needs torch to be imported already."""
        if "torch" not in sys.modules or self.watches_optimizers:
            return
        # By its name: torch.optim takes its submodule out of its own namespace.
        self.attach(importlib.import_module("torch.optim.optimizer"))
        when_imported("torch.amp.grad_scaler", self._attach_scaler)

    def watch(self) -> None:
        """Count optimizer steps now or as soon as torch is imported, however late that is."""
        if not self.watches_optimizers:
            when_imported("torch.optim.optimizer", self.attach)
            when_imported("torch.amp.grad_scaler", self._attach_scaler)

    def attach(self, module: Any) -> None:
        """Hook ``torch.optim.optimizer``, which has just been imported."""
        module.register_optimizer_step_post_hook(self._called)
        self.watches_optimizers = True

    def _attach_scaler(self, module: Any) -> None:
        scaler = module.GradScaler
        take_step = scaler.step

        def step(this: Any, optimizer: Any, *arguments: Any, **options: Any) -> Any:
            before = self.optimizers.total()
            returned = take_step(this, optimizer, *arguments, **options)
            if self.optimizers.total() == before:
                self._called(optimizer)
            return returned

        scaler.step = step

    def _called(self, optimizer: Any, *_: Any) -> None:
        if id(optimizer) not in self.optimizers:
            self._kept.append(optimizer)
        self.optimizers[id(optimizer)] += 1

    @property
    def optimizer_steps(self) -> int:
        """The largest count of any one optimizer: two optimizers in one loop are one step."""
        return max(self.optimizers.values(), default=0)

    @property
    def seen(self) -> int:
        """The steps that somebody saw: the marks if there are any, else the optimizer steps."""
        return self.marks or self.optimizer_steps


_in_trial: StepCounter | None = None


def count_here(counter: StepCounter | None) -> Callable[[], None]:
    """Make ``step()`` count into this counter; returns the call that undoes it."""
    global _in_trial
    before = _in_trial
    _in_trial = counter

    def undo() -> None:
        global _in_trial
        _in_trial = before

    return undo


def step(count: int = 1) -> None:
    """Mark one finished optimizer step, for training loops whose optimizer is not a torch optimizer.

    Does nothing outside a trial. Once marks are used they decide, so mark every step.
    """
    if _in_trial is not None and count > 0:
        _in_trial.marks += int(count)
