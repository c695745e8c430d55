"""Expandable segments, where the allocator holds unused memory that a request could not use.

The setting lives in the trial's environment under two names, because some torch releases read only one of them. It is
merged with what was set before; ``max_split_size_mb`` is taken out, since the two exclude each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watcherml.planning.controls_declared import read_declarations
from watcherml.planning.rules.draft import Draft, Drafts, Situation, change, left_out
from watcherml.protocol.plan import Skipped
from watcherml.protocol.proposal import ALLOCATOR, ALLOCATOR_VARIABLES, Capability

# Less than this share of the shortfall in unused reserved memory is not fragmentation.
LEAST_SHARE = 0.25
_WANTED = "expandable_segments:True"
_REPLACED = ("expandable_segments", "max_split_size_mb")


def with_environment(
    capabilities: tuple[Capability, ...],
    skipped: tuple[Skipped, ...],
    declarations: Mapping[str, Any] | None,
    setting: str | None,
) -> tuple[Capability, ...]:
    """Add the control that every process has in its environment, where the configuration holds none of its kind.

    ``setting`` is what the failed process had. A declaration that forbids the control has left it among the skipped.
    """
    if ALLOCATOR in {one.name for one in capabilities} | {one.capability for one in skipped}:
        return capabilities
    told = read_declarations(declarations)[ALLOCATOR]
    control = Capability(
        ALLOCATOR, ALLOCATOR_VARIABLES[:1], setting or "", told.authority, told.risk, told.semantic, "environment"
    )
    return (*capabilities, control)


def drafts(situation: Situation) -> Drafts:
    """Return the draft that switches expandable segments on, if the evidence shows fragmentation."""
    control = situation.found.get(ALLOCATOR)
    if control is None:
        return [], []
    if situation.device_kind != "cuda":
        return left_out(ALLOCATOR, "Only the CUDA allocator has this setting.")
    present = situation.source.allocator or ""
    if _WANTED.lower() in present.lower().replace(" ", ""):
        return left_out(ALLOCATOR, "Expandable segments are on already.")
    reason = "" if situation.supported(ALLOCATOR) else _no_evidence(situation)
    if reason:
        return left_out(ALLOCATOR, reason)
    setting = merged(present)
    # A configuration that holds the setting may write it into the environment again, so it says the same.
    changes = () if control.source == "environment" else (change(control, setting),)
    draft = Draft(
        "expandable-segments", "Let the allocator grow its segments", changes, (control,), "untouched",
        "allocator_expandable", ("EV-3", "EV-6"),
        "Unused pieces of reserved memory become usable for large requests.",
        ("Not available on Windows; a trial in which the setting is not in effect does not count.",),
        tier=19, environment=dict.fromkeys(ALLOCATOR_VARIABLES, setting),
    )  # fmt: skip
    return [draft], []


def merged(present: str) -> str:
    """Return the setting with expandable segments on and everything that excludes them taken out."""
    options = [one.strip() for one in present.split(",") if one.strip()]
    kept = [one for one in options if one.partition(":")[0].strip() not in _REPLACED]
    return ",".join([*kept, _WANTED])


def _no_evidence(situation: Situation) -> str:
    slack, missing = situation.source.slack_bytes, situation.source.shortfall_bytes
    if slack is None or missing is None:
        return "How much reserved memory lay unused was not recorded, so nothing points to fragmentation."
    if slack < LEAST_SHARE * missing:
        return f"Only {slack} bytes of reserved memory lay unused where {missing} were missing: no fragmentation."
    return ""
