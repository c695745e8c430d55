"""What a trial did: the worker's report, and the supervisor's result that includes how the process ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from watcherml.contract.identity import CodeIdentity
from watcherml.protocol.proposal import UpdateTrait
from watcherml.protocol.request import TrialRequest
from watcherml.sealed.device import Device, DeviceKind
from watcherml.sealed.fields import (
    Bound,
    ByteCount,
    Count,
    Digest,
    Identity,
    Items,
    Later,
    Line,
    MetricName,
    Name,
    RunId,
    Seconds,
    Steps,
    Timestamp,
    TrialId,
)
from watcherml.sealed.record import Record

WorkerOutcome = Literal["completed", "oom", "training_failed", "contract_error"]
# The last five are what the supervisor sees when no report came.
Outcome = Literal[
    "completed", "oom", "training_failed", "contract_error", "timeout", "killed", "exited", "host_oom", "lost"
]


@dataclass(frozen=True, slots=True, eq=False)
class Failure(Record):
    """How training failed inside a trial, classified by the same rules as the source."""

    failure_class: Name
    subkind: Line
    exception_type: Line
    message: Line
    requested_bytes: ByteCount | None
    phase: Line


@dataclass(frozen=True, slots=True, eq=False)
class Progress(Record):
    """How many optimizer steps were seen, and by whom.

    ``source`` is ``marks`` (``watcherml.step()``), ``optimizer`` (calls counted by a hook), ``claimed`` (only the
    returned metric says so) or ``none``. ``claimed`` is the returned progress metric, if there was one.
    """

    steps: Steps
    source: Literal["marks", "optimizer", "claimed", "none"]
    claimed: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Peak(Record):
    """Peak memory of the trial's process on one device, in bytes, with the method that measured it.

    For ``cuda`` ``reserved_bytes`` is torch's peak of reserved segments, ``other_bytes`` what the process held beside
    them when training was over; for ``simulated`` only ``allocated_bytes`` is known. ``compared_bytes`` is what a
    ceiling is compared with. ``limit_bytes`` is the device's size or a cap below it, ``headroom_bytes`` what the peak
    left of it beside everything else on the device; ``retries`` counts how often the allocator had to empty its cache
    and try again, ``retrying_steps`` the optimizer steps running in which it did.
    """

    kind: DeviceKind
    method: Line
    allocated_bytes: ByteCount | None
    reserved_bytes: ByteCount | None
    other_bytes: ByteCount | None = None
    limit_bytes: Annotated[ByteCount | None, Later()] = None
    headroom_bytes: Annotated[ByteCount | None, Later()] = None
    retries: Annotated[Count | None, Later()] = None
    retrying_steps: Annotated[Count | None, Later()] = None

    @property
    def compared_bytes(self) -> int | None:
        """Peak reserved plus own non-torch bytes on CUDA, the tracker's peak on the simulated device."""
        if self.kind == "simulated":
            return self.allocated_bytes
        if self.reserved_bytes is None:
            return None
        return self.reserved_bytes + (self.other_bytes or 0)


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredIdentity(Record):
    """Identities as the trial's own process measured them; None was not measured, which is never a match."""

    dataset_fingerprint: Identity | None
    environment_fingerprint: Identity | None
    git_commit: Identity | None
    model_identifier: Identity | None
    code: CodeIdentity | None


@dataclass(frozen=True, slots=True, eq=False)
class KnobReading(Record):
    """Whether a changed control took effect, as the trial's process saw it.

    ``not_observable`` is what a worker says of a control that it cannot look at; it proves nothing either way.
    """

    capability: Name
    state: Literal["in_effect", "not_in_effect", "not_observable"]
    observed: Line


@dataclass(frozen=True, slots=True, eq=False)
class WorkerReport(Record):
    """Written once by the worker, after the entrypoint returned or raised."""

    KIND: ClassVar[str] = "trial-report"

    request_digest: Digest
    execution_id: TrialId
    outcome: WorkerOutcome
    failure: Failure | None
    metrics: Annotated[Mapping[MetricName, float], Items(0, 1_000)]
    progress: Progress
    peak: Peak | None
    identity: MeasuredIdentity
    knobs: Annotated[tuple[KnobReading, ...], Items(0, 32)]
    traits: Annotated[tuple[UpdateTrait, ...], Items(0, 8)]
    device: Device
    gpu_count: Annotated[int, Bound(0, 1_024, "GPUs")]
    seconds: Seconds


@dataclass(frozen=True, slots=True, eq=False)
class TrialResult(Record):
    """One finished trial as the supervisor puts it on record.

    ``gpu_seconds`` is the charge: wall time times the GPUs visible to the trial (1 on a simulated device). ``traits``
    are what the trial's process saw that makes accumulation another update than a large batch.
    """

    KIND: ClassVar[str] = "trial-result"

    request_digest: Digest
    trial_id: TrialId
    run_id: RunId
    outcome: Outcome
    execution_id: TrialId | None
    failure: Failure | None
    metrics: Annotated[Mapping[MetricName, float], Items(0, 1_000)]
    progress: Progress
    peak: Peak | None
    identity: MeasuredIdentity | None
    knobs: Annotated[tuple[KnobReading, ...], Items(0, 32)]
    traits: Annotated[tuple[UpdateTrait, ...], Items(0, 8)]
    device: Device | None
    exit_code: int | None
    exit_signal: Line | None
    started_at: Timestamp
    wall_seconds: Seconds
    gpu_seconds: Seconds
    sentence: Line


@dataclass(frozen=True, slots=True, eq=False)
class Trial(Record):
    """A request with its result."""

    request: TrialRequest
    result: TrialResult
