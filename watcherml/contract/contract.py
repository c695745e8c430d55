"""``RecoveryContract``: what would count as success, sealed before any compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from watcherml.contract import limits
from watcherml.contract.budget import RecoveryBudget
from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.contract.guards import MetricGuard
from watcherml.contract.identity import CodeIdentity, WorkloadIdentity
from watcherml.contract.permissions import InterventionPermissions
from watcherml.errors import InvalidValue
from watcherml.sealed.device import Device
from watcherml.sealed.fields import Bound, ByteCount, Digest, Identity, Items, Later, MetricName, Name, RunId
from watcherml.sealed.record import Record


@dataclass(frozen=True, slots=True, eq=False)
class VerificationRequirements(Record):
    """What full and confirmation runs must show.

    ``minimum_progress_steps`` counts optimizer steps; ``max_peak_vram_bytes`` bounds the peak of the device
    that the contract names; every field of ``workload_identity`` that is set must be measured and match.
    """

    minimum_progress_steps: Annotated[int, Bound(1, 10**12, "steps")]
    metric_guards: Annotated[tuple[MetricGuard, ...], Items(0, limits.MAX_GUARDS)] = ()
    confirmation_runs: Annotated[int, Bound(1, limits.MAX_CONFIRMATIONS, "runs")] = limits.DEFAULT_CONFIRMATIONS
    max_peak_vram_bytes: ByteCount | None = None
    workload_identity: WorkloadIdentity = WorkloadIdentity()

    def check(self) -> None:
        """A metric is guarded once."""
        names = [guard.name for guard in self.metric_guards]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidValue("VerificationRequirements.metric_guards", expected="one guard a metric", got=twice[0])


@dataclass(frozen=True, slots=True, eq=False)
class RecoveryContract(Record):
    """The immutable terms of one campaign; everything later names this record's digest.

    The budget is resolved (see ``RecoveryBudget.resolve``). ``code`` holds the digests measured when the
    entrypoint was checked, ``environment_fingerprint`` the packages that were installed then (None: not measured);
    ``device`` is the source run's, and every trial must be of its kind.
    """

    KIND: ClassVar[str] = "recovery-contract"

    source_run_id: RunId
    source_capsule_digest: Digest
    source_failure_class: Name
    source_config_digest: Digest
    entrypoint: TrainingEntrypoint
    verification: VerificationRequirements
    budget: RecoveryBudget
    permissions: InterventionPermissions
    code: CodeIdentity
    device: Device
    progress_metric: MetricName = limits.DEFAULT_PROGRESS_METRIC
    control: bool = True
    environment_fingerprint: Annotated[Identity | None, Later()] = None

    def check(self) -> None:
        """The budget is complete and holds together with the requirements."""
        unset = [key for key, value in self.budget.to_data().items() if value is None and key != "max_gpu_seconds"]
        if unset:
            raise InvalidValue(f"RecoveryContract.budget.{unset[0]}", expected="a resolved value", got="None")
        resolved = self.budget.resolve(
            confirmation_runs=self.verification.confirmation_runs,
            minimum_progress_steps=self.verification.minimum_progress_steps,
            control=self.control,
        )
        if resolved != self.budget:
            raise InvalidValue("RecoveryContract.budget", expected="the resolved budget", got="another one")

    @property
    def probe_candidates(self) -> int:
        """How many candidates may be probed: the probe budget less the control."""
        return (self.budget.max_probe_trials or 0) - (1 if self.control else 0)
