"""``RecoverySpec``: what ``%%watcher recover`` was asked for, so that its plan can be prepared again with changes."""

from __future__ import annotations

import math
import re
from argparse import Namespace
from dataclasses import dataclass, replace
from typing import Any

from watcherml.api import data
from watcherml.api.recover import RecoveryPreparation, prepare_oom_recovery
from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.errors import UsageError
from watcherml.options import budget, permissions, prepare_options, requirements, steps_below, steps_of
from watcherml.store.storage import Storage

# What may be changed before a plan is sealed, and the flag that holds it.
CHANGES = {
    "metrics": "metric",
    "minimum_progress_steps": "minimum_progress_steps",
    "max_trials": "max_trials",
    "confirmation_runs": "confirmation_runs",
    "max_peak_vram_gib": "max_peak_vram_gib",
}
_FEW_POINTS = 4  # of each metric; the last value is always among them
_BETTER_HIGHER = frozenset(
    ("acc", "accuracy", "auc", "auroc", "f1", "precision", "recall", "score", "bleu", "rouge", "iou", "map", "r2",
     "reward", "psnr", "ssim")
)  # fmt: skip


@dataclass(frozen=True)
class RecoverySpec:
    """A failed run, the function that trains, and the flags of contract, budget and policy.

    ``flags`` is what the magic's parser returned. A spec is never changed: ``changed`` returns another one.
    """

    run_id: str
    storage: Storage
    entrypoint: TrainingEntrypoint
    flags: Namespace

    @property
    def values(self) -> dict[str, Any]:
        """The present value of everything that ``prepare`` takes; steps that no flag gives are the run's configured.

        ``max_trials`` and ``max_peak_vram_gib`` are None where no flag sets them, the steps where nothing says them.
        """
        found = {name: getattr(self.flags, flag) for name, flag in CHANGES.items()}
        found["metrics"] = tuple(found["metrics"])
        if found["minimum_progress_steps"] is None:
            found["minimum_progress_steps"] = steps_of(self._config())
        return found

    def suggested_metrics(self) -> tuple[str, ...]:
        """Return a guard for each metric that the failed run logged, as ``--metric`` spells it, the newest name last.

        The baseline is the last value, the tolerance a tenth of it, the direction a guess by the name.
        """
        last: dict[str, float] = {}
        for point in self.storage.get_metrics(self.run_id, max_points=_FEW_POINTS):
            value = point["value"]
            if point["name"] != self.flags.progress_metric and value is not None and math.isfinite(value):
                last[str(point["name"])] = float(value)
        return tuple(guard(name, value) for name, value in last.items())

    def changed(self, **changes: Any) -> RecoverySpec:
        """Return this with other values: ``metrics`` (``NAME:minimize|maximize:BASELINE:TOLERANCE[:TARGET]`` each),
        ``minimum_progress_steps``, ``max_trials``, ``confirmation_runs``, ``max_peak_vram_gib`` (None: no ceiling).

        Raises ``UsageError`` for another name.
        """
        unknown = sorted(set(changes) - set(CHANGES))
        if unknown:
            raise UsageError("a change of the plan", expected="one of " + ", ".join(CHANGES), got=", ".join(unknown))
        flags = Namespace(**vars(self.flags))
        for name, value in changes.items():
            setattr(flags, CHANGES[name], list(value) if name == "metrics" else value)
        return replace(self, flags=flags)

    def check(self, **changes: Any) -> None:
        """Raise what is wrong with the values themselves; nothing is read but the run, nothing is written."""
        self.changed(**changes)._wanted()

    def prepare(self, **changes: Any) -> RecoveryPreparation:
        """Check, seal and plan with these changes, and put the plan on record; no trial is run.

        The entrypoint is checked in a child process again, which takes seconds. Raises ``UsageError`` for values that
        do not parse, and what ``prepare_oom_recovery`` raises. This spec stays as it is.
        """
        spec = self.changed(**changes)
        wanted, spending, ceiling, rest = spec._wanted()
        return prepare_oom_recovery(
            spec.run_id, spec.entrypoint, wanted, spending, ceiling, storage=spec.storage, **rest
        )

    def _wanted(self) -> tuple[Any, Any, Any, dict[str, Any]]:
        config = self._config()
        wanted = requirements(self.flags, steps_of(config), steps_below(config))
        return wanted, budget(self.flags), permissions(self.flags), prepare_options(self.flags)

    def _config(self) -> dict[str, Any]:
        return dict(data.run(self.storage, self.run_id)["config"])


def guard(name: str, value: float) -> str:
    """Return a guard of a logged metric as ``--metric`` spells it: nothing may get worse by more than a tenth."""
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    direction = "maximize" if words & _BETTER_HIGHER else "minimize"
    return f"{name}:{direction}:{value:g}:{abs(value) / 10:.2g}"
