"""``RecoveryBudget``: what a campaign may spend, with the one set of defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from watcherml.contract import limits
from watcherml.errors import InvalidValue
from watcherml.sealed.fields import Bound, Later
from watcherml.sealed.record import Record

_Trials = Annotated[int, Bound(1, limits.MAX_TRIALS, "trials")]
_Probes = Annotated[int, Bound(0, limits.MAX_TRIALS, "trials")]
_Steps = Annotated[int, Bound(1, 10**12, "steps")]
_Wall = Annotated[float, Bound(0.1, limits.MAX_CAMPAIGN_SECONDS, "seconds")]
_Gpu = Annotated[float, Bound(0.1, limits.MAX_GPU_SECONDS, "seconds")]
_Grace = Annotated[float, Bound(0, limits.MAX_GRACE_SECONDS, "seconds")]


@dataclass(frozen=True, slots=True, eq=False)
class RecoveryBudget(Record):
    """Limits of a campaign. A field left None is resolved when the contract is made.

    Trials are counted in processes, times in seconds of wall clock; ``max_gpu_seconds`` None means no
    such limit. The control trial is paid from ``max_probe_trials``. ``max_parallel_probes`` None means 1: one trial at
    a time; more let so many probes run at once where the machine has room for them.
    """

    max_trials: _Trials | None = None
    max_probe_trials: _Probes | None = None
    max_full_trials: _Trials | None = None
    probe_steps: _Steps | None = None
    trial_timeout_seconds: _Wall | None = None
    campaign_timeout_seconds: _Wall | None = None
    max_gpu_seconds: _Gpu | None = None
    termination_grace_seconds: _Grace | None = None
    max_parallel_probes: Annotated[_Trials | None, Later()] = None

    def resolve(self, *, confirmation_runs: int, minimum_progress_steps: int, control: bool) -> RecoveryBudget:
        """Return the budget with every field set but ``max_gpu_seconds`` and ``max_parallel_probes``.

        Raises ``InvalidValue`` naming the field where the numbers cannot hold together: probes + full +
        confirmations above ``max_trials``, no room for the control, ``probe_steps`` above the required
        progress, or a trial timeout above the campaign's.
        """
        trials = limits.DEFAULT_TRIALS if self.max_trials is None else self.max_trials
        probes, full = self._split(trials - confirmation_runs, control)
        # Nobody set the probes to none where they were left to us: then it is room that is missing.
        needed = max(probes, 1) if control and self.max_probe_trials is None else probes
        if needed + full + confirmation_runs > trials:
            can_be_raised = needed + full + confirmation_runs <= limits.MAX_TRIALS
            raise InvalidValue(
                "RecoveryBudget.max_trials",
                expected=f"at least probes + full trials + confirmations = {needed} + {full} + {confirmation_runs}",
                got=str(trials),
                remedy=f"Raise max_trials (at most {limits.MAX_TRIALS}) or lower one of the three."
                if can_be_raised
                else f"Lower one of the three: max_trials is at most {limits.MAX_TRIALS}.",
            )
        if control and probes < 1:
            raise InvalidValue(
                "RecoveryBudget.max_probe_trials",
                expected="at least 1, because the control trial is one of the probes",
                got=str(probes),
                remedy="Raise max_probe_trials, or do without the control.",
            )
        steps = (
            min(limits.DEFAULT_PROBE_STEPS, minimum_progress_steps) if self.probe_steps is None else self.probe_steps
        )
        if steps > minimum_progress_steps:
            raise InvalidValue(
                "RecoveryBudget.probe_steps",
                expected=f"at most minimum_progress_steps = {minimum_progress_steps}",
                got=str(steps),
            )
        trial_seconds, campaign_seconds = self._times()
        grace = self.termination_grace_seconds
        return RecoveryBudget(
            trials, probes, full, steps, trial_seconds, campaign_seconds, self.max_gpu_seconds,
            limits.DEFAULT_GRACE_SECONDS if grace is None else grace, self.max_parallel_probes,
        )  # fmt: skip

    @property
    def parallel_probes(self) -> int:
        """How many probes may run at once, as far as the contract goes."""
        return self.max_parallel_probes or 1

    def _split(self, room: int, control: bool) -> tuple[int, int]:
        """Divide the trials that confirmations leave between probes and full trials."""
        probes, full = self.max_probe_trials, self.max_full_trials
        if full is None:
            left = room - (probes if probes is not None else 3 if control else 2)
            full = max(1, min(limits.DEFAULT_FULL, left))
        if probes is None:
            probes = max(0, min(limits.DEFAULT_PROBES, room - full))
        return probes, full

    def _times(self) -> tuple[float, float]:
        trial, campaign = self.trial_timeout_seconds, self.campaign_timeout_seconds
        if campaign is None:
            campaign = max(limits.DEFAULT_CAMPAIGN_SECONDS, trial or 0)
        if trial is None:
            trial = min(limits.DEFAULT_TRIAL_SECONDS, campaign)
        if trial > campaign:
            raise InvalidValue(
                "RecoveryBudget.trial_timeout_seconds",
                expected=f"at most campaign_timeout_seconds = {campaign:g}",
                got=f"{trial:g}",
            )
        return trial, campaign
