"""What a device's memory held when a request failed, as parts that can be drawn to scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from watcherml.forensics.capsule import Capsule, MemoryFacts
from watcherml.report.units import format_bytes

# Printed figures are rounded, so their sum misses the limit by a little; less than this is no other use.
ROUNDING_SHARE = 0.005

NAMES = {
    "allocated": "allocated by PyTorch",
    "reserved_unallocated": "reserved by PyTorch, not allocated",
    "own_other": "this process, outside PyTorch",
    "foreign": "other processes",
    "other": "other use of the device",
    "in_use": "in use, by whom is not stated",
    "free": "free",
}


@dataclass(frozen=True)
class Part:
    """One stretch of the device's memory in bytes; ``key`` is a key of ``NAMES``."""

    key: str
    bytes: int

    @property
    def name(self) -> str:
        """The part in words."""
        return NAMES[self.key]


@dataclass(frozen=True)
class Picture:
    """Parts in stacking order against a limit, the request, and what was missing. All in bytes.

    ``limit_bytes`` is the capacity, or a cap below it (then ``capped``). ``used_bytes`` is where the request
    would have begun. Parts are those that were stated or follow from what was stated; they may leave a gap.
    """

    limit_bytes: int
    capped: bool
    parts: tuple[Part, ...]
    used_bytes: int
    requested_bytes: int | None
    shortfall_bytes: int | None

    @property
    def sentence(self) -> str:
        """The request, what was free, and the shortfall, for a person who cannot see the bar."""
        limit = f"{'the allowed ' if self.capped else ''}{format_bytes(self.limit_bytes)}"
        free = next((part.bytes for part in self.parts if part.key == "free"), None)
        if self.requested_bytes is None:
            return f"{format_bytes(self.used_bytes)} of {limit} were in use."
        there = f"in use: {format_bytes(self.used_bytes)}" if free is None else f"free: {format_bytes(free)}"
        text = f"{format_bytes(self.requested_bytes)} were requested; {there} of {limit}."
        if self.shortfall_bytes is not None and self.shortfall_bytes > 0:
            text += f" {format_bytes(self.shortfall_bytes)} were missing."
        return text


def picture(capsule: Capsule) -> Picture | None:
    """Return the picture of a capsule's memory, or None where no limit was stated."""
    facts = capsule.memory
    capped = facts.allowed_bytes is not None and (
        facts.capacity_bytes is None or facts.allowed_bytes < facts.capacity_bytes
    )
    limit = facts.allowed_bytes if capped else facts.capacity_bytes
    if not limit:
        return None
    slack = _slack(facts)
    # Under a cap only PyTorch's own memory counts, so the driver's free bytes and other processes do not belong here.
    parts = _under_cap(facts, slack, limit) if capped else _on_device(capsule, slack, limit)
    used = sum(part.bytes for part in parts if part.key != "free")
    return Picture(limit, capped, tuple(parts), used, facts.requested_bytes, shortfall(capsule))


def shortfall(capsule: Capsule) -> int | None:
    """Return the missing bytes: the diagnosis' figure, else request less free, else None (not computable)."""
    if capsule.diagnosis.shortfall_bytes is not None:
        return capsule.diagnosis.shortfall_bytes
    facts = capsule.memory
    if facts.requested_bytes is None or facts.free_bytes is None or facts.allowed_bytes is not None:
        return None
    return facts.requested_bytes - facts.free_bytes


def _slack(facts: MemoryFacts) -> int | None:
    if facts.reserved_unallocated_bytes is not None:
        return facts.reserved_unallocated_bytes
    if facts.reserved_bytes is None or facts.allocated_bytes is None:
        return None
    return max(0, facts.reserved_bytes - facts.allocated_bytes)


def _under_cap(facts: MemoryFacts, slack: int | None, limit: int) -> list[Part]:
    parts = _torch_parts(facts, slack)
    if parts:
        parts.append(Part("free", max(0, limit - sum(part.bytes for part in parts))))
    return parts


def _on_device(capsule: Capsule, slack: int | None, limit: int) -> list[Part]:
    facts = capsule.memory
    parts = _torch_parts(facts, slack)
    known = sum(part.bytes for part in parts)
    if facts.free_bytes is None:
        return parts
    rest = limit - facts.free_bytes - known
    if not parts:
        parts = [Part("in_use", max(0, rest))]
    elif rest > limit * ROUNDING_SHARE:
        parts.extend(_others(capsule, known, rest, int(limit * ROUNDING_SHARE)))
    return [*parts, Part("free", facts.free_bytes)]


def _others(capsule: Capsule, torch_bytes: int, rest: int, rounding: int) -> list[Part]:
    """Divide what is neither PyTorch's nor free between this process and others, as far as it is known whose it is."""
    own = _own_other(capsule, torch_bytes)
    if own is None:
        return [Part("other", rest)]
    own = min(max(own, 0), rest)
    found = [Part("own_other", own), Part("foreign", rest - own)]
    return [part for part in found if part.bytes > rounding] or [Part("other", rest)]


def _own_other(capsule: Capsule, torch_bytes: int) -> int | None:
    """Return what this process held outside PyTorch: as the message says it, else as NVML did."""
    if capsule.memory.process_in_use_bytes is not None:
        return capsule.memory.process_in_use_bytes - torch_bytes
    piece = next((one.data for one in capsule.evidence if one.id == "EV-5"), None)
    for key in ("failing", "nvml"):
        piece = piece.get(key) if isinstance(piece, Mapping) else None
    found = piece.get("own_other_bytes") if isinstance(piece, Mapping) else None
    return found if type(found) is int else None


def _torch_parts(facts: MemoryFacts, slack: int | None) -> list[Part]:
    parts = [] if facts.allocated_bytes is None else [Part("allocated", facts.allocated_bytes)]
    return [*parts, Part("reserved_unallocated", slack)] if slack else parts
