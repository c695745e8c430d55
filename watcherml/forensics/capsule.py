"""``Capsule``: the sealed evidence of one failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from watcherml.errors import InvalidValue
from watcherml.forensics.evidence import NAMES, Evidence
from watcherml.forensics.neighbours import Neighbours
from watcherml.sealed.device import Device
from watcherml.sealed.fields import Bound, ByteCount, Count, Later, Line, Name, RunId, Steps, Text, Timestamp
from watcherml.sealed.record import Record
from watcherml.sealed.shown import Shown

CAPSULE_SCHEMA_VERSION = "2.0"

_Long = Annotated[str, Text(0, 200_000)]


@dataclass(frozen=True, slots=True, eq=False)
class FailureFacts(Record):
    """What failed: class, rule and words of the classifier, and the place in the code.

    ``where`` is the innermost frame of the user's own code as ``file:line in function``; ``step`` the last
    optimizer step that was seen before the failure.
    """

    class_: Name
    subkind: Line
    rule: Line
    rules_version: Count
    matched: Line
    exception_type: Line
    message: _Long
    traceback: _Long
    phase: Line
    step: Steps | None
    where: Line


@dataclass(frozen=True, slots=True, eq=False)
class MemoryFacts(Record):
    """Bytes at the moment of the failure, as stated by the exception; None was not stated, which is not zero.

    ``capacity_bytes`` is the device's total or the declared budget; ``allowed_bytes`` a cap below it.
    """

    requested_bytes: ByteCount | None = None
    capacity_bytes: ByteCount | None = None
    allowed_bytes: ByteCount | None = None
    free_bytes: ByteCount | None = None
    allocated_bytes: ByteCount | None = None
    reserved_bytes: ByteCount | None = None
    reserved_unallocated_bytes: ByteCount | None = None
    process_in_use_bytes: ByteCount | None = None
    source: Line = ""


@dataclass(frozen=True, slots=True, eq=False)
class Cause(Record):
    """One possible cause with its numbers and the evidence it rests on."""

    id: Name
    name: Name
    bytes: int | None
    evidence_ids: tuple[Name, ...]
    sentence: Line


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis(Record):
    """Which causes suffice, contribute, are excluded, are unknown. ``shortfall_bytes`` is what was missing.

    ``horizon_step`` is the optimizer step at which memory that piles up would fill the device by itself; None where
    nothing was measured to pile up. ``action`` says what to do next, without why; None where ``sentence`` ends with it.
    """

    status: Literal["diagnosed", "ambiguous", "capacity_bound", "insufficient_evidence"]
    shortfall_bytes: int | None
    phase: Line
    sufficient: tuple[Cause, ...]
    contributing: tuple[Cause, ...]
    excluded: tuple[Cause, ...]
    unknown: tuple[Cause, ...]
    rules_version: Count
    sentence: Line
    horizon_step: Annotated[Steps | None, Later()] = None
    action: Annotated[Line | None, Later()] = None


@dataclass(frozen=True, slots=True, eq=False)
class Completeness(Record):
    """How many of the pieces of evidence were captured."""

    present: Annotated[int, Bound(0, len(NAMES))]
    total: Annotated[int, Bound(0, len(NAMES))]


@dataclass(frozen=True, slots=True, eq=False)
class Capsule(Shown, Record):
    """The failure capsule: schema ``watcherml.failure-capsule``. ``headline`` says first what to do next."""

    KIND: ClassVar[str] = "watcherml.failure-capsule"

    schema_version: Literal["2.0"]
    run_id: RunId
    project: Name
    created_at: Timestamp
    headline: Line
    failure: FailureFacts
    device: Device
    memory: MemoryFacts
    diagnosis: Diagnosis
    evidence: tuple[Evidence, ...]
    completeness: Completeness
    neighbours: Annotated[Neighbours | None, Later()] = None

    def check(self) -> None:
        """All eleven pieces are listed, in order, and counted."""
        if tuple(piece.id for piece in self.evidence) != tuple(NAMES):
            raise InvalidValue("Capsule.evidence", expected=", ".join(NAMES), got="another list")
        counted = sum(piece.status == "present" for piece in self.evidence)
        if (self.completeness.present, self.completeness.total) != (counted, len(NAMES)):
            raise InvalidValue("Capsule.completeness", expected=f"{counted} of {len(NAMES)}", got="another count")
