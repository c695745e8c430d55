"""Named field types with their bounds, used as annotations of records.

A bound is data on the annotation (``Annotated[int, Bound(0, 10)]``); the one decoder in ``record`` checks
it for values that come from a file and for values that come from Python alike.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from watcherml.sealed.canonical import MAX_SAFE_INTEGER


@dataclass(frozen=True)
class Bound:
    """Inclusive numeric limits with the unit that an error message names."""

    low: float | None = None
    high: float | None = None
    unit: str = ""

    def wanted(self) -> str:
        """Return the limits in words."""
        unit = f" {self.unit}" if self.unit else ""
        if self.low is not None and self.high is not None:
            return f"{self.low} to {self.high}{unit}"
        if self.low is not None:
            return f"at least {self.low}{unit}"
        return f"at most {self.high}{unit}"

    def holds(self, value: float) -> bool:
        """Tell whether the value lies within the limits."""
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


@dataclass(frozen=True)
class Text:
    """Limits on a string: length in characters, and a pattern that must match the whole."""

    low: int = 0
    high: int = 1_000_000
    pattern: str | None = None
    wanted_words: str = ""

    def wanted(self) -> str:
        """Return the limits in words."""
        return self.wanted_words or f"text of {self.low} to {self.high} characters"

    def holds(self, value: str) -> bool:
        """Tell whether the text keeps the limits."""
        if not self.low <= len(value) <= self.high:
            return False
        return self.pattern is None or re.fullmatch(self.pattern, value) is not None


@dataclass(frozen=True)
class Items:
    """Limits on the number of entries of a tuple or mapping."""

    low: int = 0
    high: int = 10_000

    def wanted(self) -> str:
        """Return the limits in words."""
        return f"{self.low} to {self.high} entries"

    def holds(self, value: Any) -> bool:
        """Tell whether the container keeps the limits."""
        return self.low <= len(value) <= self.high


@dataclass(frozen=True)
class Later:
    """Marks a field that came after documents had been sealed without it.

    Its default is None, and None is left out of the document: what was sealed before keeps its bytes and its digest.
    """

    def wanted(self) -> str:
        """Return what every field has to be: it sets no limit."""
        return "any value"

    def holds(self, value: Any) -> bool:
        """Set no limit."""
        return True


@dataclass(frozen=True)
class JsonMarker:
    """Marks a field that holds any JSON value, kept as it came."""


_ID = r"[A-Za-z0-9][A-Za-z0-9._+-]*"

RunId = Annotated[str, Text(1, 128, _ID, "a run id: letters, digits, '.', '_', '+', '-'")]
CampaignId = Annotated[str, Text(1, 128, _ID, "a campaign id: letters, digits, '.', '_', '+', '-'")]
TrialId = Annotated[str, Text(1, 160, _ID, "a trial id: letters, digits, '.', '_', '+', '-'")]
ProposalId = Annotated[str, Text(1, 200, _ID, "a proposal id: letters, digits, '.', '_', '+', '-'")]
Digest = Annotated[str, Text(71, 71, r"sha256:[0-9a-f]{64}", "a digest: 'sha256:' and 64 hexadecimal digits")]
MetricName = Annotated[str, Text(1, 256, r"[^\x00-\x1f\x7f]+", "a metric name of 1 to 256 printable characters")]
Identity = Annotated[str, Text(1, 1024, None, "an identity of 1 to 1024 characters")]
Line = Annotated[str, Text(0, 2_000, None, "text of at most 2000 characters")]
Name = Annotated[str, Text(1, 400, None, "a name of 1 to 400 characters")]
ByteCount = Annotated[int, Bound(0, MAX_SAFE_INTEGER, "bytes")]
Steps = Annotated[int, Bound(0, 10**12, "steps")]
Count = Annotated[int, Bound(0, 10**12)]
Seconds = Annotated[float, Bound(0, 10**9, "seconds")]
Timestamp = Annotated[float, Bound(0, 10**11, "seconds since 1970 UTC")]
Json = Annotated[Any, JsonMarker()]
FloatPaths = Annotated[tuple[Annotated[str, Text(1, 1_000_000)], ...], Items(0, 500_000)]
