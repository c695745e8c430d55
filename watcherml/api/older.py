"""What WatcherML 0.1 recorded, as today's values for surfaces. Nothing of it is put on record."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from watcherml.forensics.capsule import Capsule, Completeness, Diagnosis, FailureFacts, MemoryFacts
from watcherml.forensics.causes.diagnose import diagnose, not_memory
from watcherml.forensics.causes.vector import Vector
from watcherml.forensics.evidence import NAMES, Evidence, missing, present
from watcherml.forensics.oom_message import parse
from watcherml.forensics.shortfall import shortfall
from watcherml.sealed.device import Device
from watcherml.store.older import CLAIMED
from watcherml.store.runs import Row

OUT_OF_MEMORY = "cuda_out_of_memory"
SOURCE = "WatcherML 0.1"
# Where 0.1 kept what each piece of evidence holds today.
_PLACES = {
    "EV-1": "config", "EV-2": "training_state", "EV-3": "runtime", "EV-4": "resource_state_at_failure", "EV-5": "gpu",
    "EV-6": "framework", "EV-7": "git", "EV-8": "environment", "EV-9": "dataset", "EV-10": "recent_metrics",
    "EV-11": "notebook_cells_executed",
}  # fmt: skip


def capsule(row: Row, document: Mapping[str, Any]) -> Capsule:
    """Return a failure of 0.1 as a capsule: its class as 0.1 found it, its numbers read from the text it kept.

    ``row`` is the run's row, ``document`` the capsule as 0.1 wrote it.
    """
    kind = str(document.get("failure_class") or "unclassified")
    message, steps = str(document.get("message") or ""), row.get("last_step")
    name = str(document.get("exception_type") or "Exception")
    memory, diagnosis = _memory(kind, message, steps)
    evidence = tuple(_piece(one, document.get("evidence")) for one in NAMES)
    first = (message.strip().splitlines() or [""])[0]
    return Capsule(
        schema_version="2.0",
        run_id=str(row["run_id"]),
        project=str(row["project"]) or "project",
        created_at=float(document.get("captured_at") or row["started_at"]),
        headline=f"Recorded by {SOURCE}. {name}: {first}"[:2_000],
        failure=FailureFacts(
            class_=kind, subkind=kind, rule=str(_rule(document))[:2_000], rules_version=0, matched="",
            exception_type=name[:2_000], message=message[:200_000],
            traceback=str(document.get("traceback") or "")[-200_000:], phase="unknown", step=steps, where="",
        ),
        device=Device("none"),
        memory=memory,
        diagnosis=diagnosis,
        evidence=evidence,
        completeness=Completeness(sum(one.status == "present" for one in evidence), len(NAMES)),
    )  # fmt: skip


def claim(row: Row, trials: list[Row], happened: list[Row]) -> dict[str, Any]:
    """Return the document of a campaign of 0.1: a claim, and never verified."""
    return {
        "kind": "verdict", "campaign_id": row["campaign_id"], "status": CLAIMED, "standing": CLAIMED, "verified": False,
        "sentence": row["sentence"], "reason_code": row["reason_code"], "source_run_id": row["source_run_id"],
        "lifecycle": row["lifecycle"], "trials": trials, "events": happened,
    }  # fmt: skip


def unfinished(row: Row) -> Row:
    """Return what is to be said of a campaign that 0.1 left without an end."""
    return {
        **row, "lifecycle": "interrupted", "status": CLAIMED, "reason_code": "no_end_recorded",
        "sentence": f"{SOURCE} recorded no end of this campaign; it cannot be taken up here.",
    }  # fmt: skip


def _rule(document: Mapping[str, Any]) -> Any:
    classification = document.get("classification")
    return classification.get("rule") if isinstance(classification, Mapping) else ""


def _memory(kind: str, message: str, step: int | None) -> tuple[MemoryFacts, Diagnosis]:
    if kind != OUT_OF_MEMORY:
        return MemoryFacts(), not_memory("This failure is not about device memory.")
    stated = parse(message)
    reserved = stated.reserved_bytes
    if reserved is None and stated.allocated_bytes is not None and stated.reserved_unallocated_bytes is not None:
        reserved = stated.allocated_bytes + stated.reserved_unallocated_bytes
    rounding = sum(stated.rounding_bytes.get(name, 0) for name in ("tried_bytes", "free_bytes"))
    short = shortfall(
        stated.tried_bytes, stated.free_bytes, allowed=stated.allowed_bytes, reserved=reserved, rounding=rounding
    )
    facts = MemoryFacts(
        requested_bytes=stated.tried_bytes, capacity_bytes=stated.total_bytes, allowed_bytes=stated.allowed_bytes,
        free_bytes=stated.free_bytes, allocated_bytes=stated.allocated_bytes, reserved_bytes=reserved,
        reserved_unallocated_bytes=stated.reserved_unallocated_bytes,
        process_in_use_bytes=stated.process_in_use_bytes, source="exception text",
    )  # fmt: skip
    vector = Vector(
        "cuda", "unknown", step, facts.requested_bytes, facts.capacity_bytes, facts.allowed_bytes, facts.free_bytes,
        facts.allocated_bytes, facts.reserved_bytes, short,
    )  # fmt: skip
    return facts, diagnose(vector)


def _piece(name: str, evidence: Any) -> Evidence:
    found = evidence.get(_PLACES[name]) if isinstance(evidence, Mapping) else None
    absent = isinstance(found, Mapping) and (found.get("available") is False or not any(found.values()))
    if not found or absent:
        return missing(name, f"{SOURCE} did not record it.")
    return present(name, _finite({"config": found} if name == "EV-1" else found), SOURCE)


def _finite(value: Any) -> Any:
    """Return a value as a sealed document can hold it: JSON has no NaN and no infinity."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value
