"""The eleven pieces of evidence in a capsule, each present with its source or missing with a reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from watcherml.errors import InvalidValue
from watcherml.sealed.fields import Json, Line, Name
from watcherml.sealed.record import Record

NAMES: dict[str, str] = {
    "EV-1": "Run configuration",
    "EV-2": "Last training state",
    "EV-3": "Process/runtime",
    "EV-4": "Resource sampler",
    "EV-5": "GPU information",
    "EV-6": "Framework state",
    "EV-7": "Git state",
    "EV-8": "Environment",
    "EV-9": "Dataset fingerprint",
    "EV-10": "Metric history",
    "EV-11": "Notebook history",
}


@dataclass(frozen=True, slots=True, eq=False)
class Evidence(Record):
    """One piece of evidence. ``data`` is plain JSON with units in its keys; None where it is missing."""

    id: Name
    name: Name
    status: Literal["present", "missing"]
    source: Line
    reason: Line
    data: Json

    def check(self) -> None:
        """A missing piece has a reason and no data."""
        if (self.status == "missing") != (self.data is None) or (self.status == "missing") != bool(self.reason):
            raise InvalidValue(f"Evidence.{self.id}", expected="data, or a reason for its absence", got=self.status)


def present(evidence_id: str, data: Any, source: str) -> Evidence:
    """Return a piece of evidence that was captured."""
    return Evidence(evidence_id, NAMES[evidence_id], "present", source, "", data)


def missing(evidence_id: str, reason: str) -> Evidence:
    """Return a piece of evidence that is absent, with the reason."""
    return Evidence(evidence_id, NAMES[evidence_id], "missing", "", reason, None)
