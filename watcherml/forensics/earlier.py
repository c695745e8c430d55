"""Looking through the store for what is like a failure, at the moment it is captured. Reads, never writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from watcherml.forensics.capsule import Capsule
from watcherml.forensics.difference import Point, Side, difference
from watcherml.forensics.neighbours import Nearest, Neighbours, Similar
from watcherml.forensics.similar import (
    LEAST_ALIKE,
    LEAST_NEAR,
    MOST_SIMILAR,
    SCORE_VERSION,
    Earned,
    Failure,
    parts_of,
    score_failures,
    score_success,
    total,
)
from watcherml.store import related
from watcherml.store.runs import Row
from watcherml.store.storage import Storage

MOST_FAILURES = 40  # earlier failures of the class that are compared
MOST_SUCCESSES = 40  # earlier successes of the project that are compared
MOST_CHANGES = 40  # in a capsule; the others are counted
MOST_POINTS = 2_000  # metric points of each run that a capsule's difference reads
MOST_PATCH = 2_000_000  # bytes
_PLACES = {
    "exception_type": "$.value.failure.exception_type",
    "message": "$.value.failure.message",
    "where": "$.value.failure.where",
    "phase": "$.value.failure.phase",
    "device": "$.value.device.kind",
    "capacity_bytes": "$.value.memory.capacity_bytes",
    "requested_bytes": "$.value.memory.requested_bytes",
}


def with_neighbours(capsule: Capsule, storage: Storage) -> Capsule:
    """Return the capsule with what the store knows of earlier runs; a search that fails says so in it."""
    try:
        row = storage.get_run(capsule.run_id)
        if row["role"] != "user":
            return capsule  # a trial stands with its campaign
        return capsule.replace(neighbours=find(capsule, row, storage))
    except Exception as error:  # noqa: BLE001 - a store that cannot be searched must not cost the capsule
        problem = f"Earlier runs could not be searched: {type(error).__name__}: {error}"
        return capsule.replace(neighbours=Neighbours(problem=problem.encode("utf-8", "replace").decode()[:500]))


def find(capsule: Capsule, row: Row, storage: Storage) -> Neighbours:
    """Return the failures before this one that are like it, and the nearest success before its run began.

    Raises what the store raises.
    """
    rows = related.failures(
        storage.database, capsule.run_id, capsule.failure.class_, capsule.created_at, MOST_FAILURES, _PLACES
    )
    now = _failure(capsule, row)
    good = related.successes(storage.database, capsule.run_id, capsule.project, row["started_at"], MOST_SUCCESSES)
    return Neighbours(
        similar=_similar(now, rows, storage),
        nearest=_nearest(capsule, row, good, storage),
        failures_looked_at=len(rows),
        successes_looked_at=len(good),
        score_version=SCORE_VERSION,
    )


def side_of(storage: Storage, row: Mapping[str, Any], points: list[Point]) -> Side:
    """Return a recorded run as one side of a difference, with its cells and its uncommitted changes."""
    run_id = str(row["run_id"])
    cells = [(str(one["cell_id"] or ""), str(one["source"])) for one in storage.evidence.cells(run_id=run_id)]
    return Side(
        row["config"], row["facts"], row.get("device"), row.get("last_step"), points, cells, _patch(storage, row)
    )


def _patch(storage: Storage, row: Mapping[str, Any]) -> str | None:
    git = row["facts"].get("git")
    digest = git.get("patch") if isinstance(git, Mapping) else None
    if not digest or (git.get("patch_bytes") or 0) > MOST_PATCH:
        return None
    return storage.evidence.blob(digest).decode("utf-8", "backslashreplace")


def _failure(capsule: Capsule, row: Row) -> Failure:
    failure, memory = capsule.failure, capsule.memory
    return Failure(
        failure.class_, failure.subkind, failure.exception_type, failure.message, failure.where, failure.phase,
        capsule.device.kind, memory.capacity_bytes, memory.requested_bytes, capsule.project, row["config"],
    )  # fmt: skip


def _similar(now: Failure, rows: list[Row], storage: Storage) -> tuple[Similar, ...]:
    """Return the failures that are alike enough: with a verified recovery first, then the best, then the latest."""
    scored = [(score_failures(now, _earlier(row)), row) for row in rows]
    alike = [(parts, row) for parts, row in scored if total(parts) >= LEAST_ALIKE]
    alike.sort(
        key=lambda pair: (
            pair[1]["verified_campaign_id"] is None, -total(pair[0]), -pair[1]["created_at"], pair[1]["run_id"],
        )
    )  # fmt: skip
    return tuple(_record(parts, row, storage) for parts, row in alike[:MOST_SIMILAR])


def _earlier(row: Row) -> Failure:
    return Failure(
        row["failure_class"], row["subkind"], row["exception_type"] or "", row["message"] or "", row["where"] or "",
        row["phase"] or "", row["device"] or "", row["capacity_bytes"], row["requested_bytes"], row["project"],
        row["config"],
    )  # fmt: skip


def _record(parts: tuple[Earned, ...], row: Row, storage: Storage) -> Similar:
    verified = row["verified_campaign_id"]
    changes = [] if verified is None else related.verified_changes(storage.database, verified)
    words = "; ".join(f"{one['path']}: {_short(one['before'])} → {_short(one['after'])}" for one in changes)
    note = "" if row["resolved_at"] is None else (row["resolved_note"] or "marked as resolved, without a note")
    return Similar(
        run_id=row["run_id"], project=row["project"], created_at=row["created_at"], headline=row["sentence"][:600],
        score=total(parts), parts=parts_of(parts), origin=row["origin"], resolution=note[:1_000],
        campaign_id=row["campaign_id"] or "", verified_campaign_id=verified, verified_changes=words[:600] or None,
    )  # fmt: skip


def _short(value: Any) -> str:
    text = "none" if value is None else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _nearest(capsule: Capsule, row: Row, good: list[Row], storage: Storage) -> Nearest | None:
    device = row["device"] or (capsule.device.to_data() if capsule.device.kind != "none" else None)
    failed = Side(row["config"], row["facts"], device)
    scored: list[tuple[tuple[Earned, ...], Row]] = [
        (score_success(failed, Side(one["config"], one["facts"], one["device"])), one) for one in good
    ]
    # The newest of equals: the list is newest first, and max takes the first.
    parts, chosen = max(scored, key=lambda pair: total(pair[0]), default=((), None))
    if chosen is None or total(parts) < LEAST_NEAR:
        return None
    sides = [
        side_of(storage, one, related.last_points(storage.database, one["run_id"], MOST_POINTS))
        for one in (chosen, row)
    ]
    before, after = sides
    after = Side(
        after.config, after.facts, device, capsule.failure.step, after.points, _cells(capsule, chosen) or after.cells,
        after.patch,
    )  # fmt: skip
    failure = capsule.failure
    changes = difference(before, after, failure.class_, subkind=failure.subkind, phase=failure.phase, most=MOST_CHANGES)
    return Nearest(chosen["run_id"], chosen["started_at"], chosen["last_step"], total(parts), parts_of(parts), changes)


def _cells(capsule: Capsule, success: Row) -> list[tuple[str, str]]:
    """Return the cells of the capsule that were executed after the success; the failing one is among them."""
    data = next((piece.data for piece in capsule.evidence if piece.id == "EV-11"), None)
    data = data.get("cells") if isinstance(data, Mapping) else data
    return [
        (str(one.get("cell_id") or ""), str(one.get("source") or ""))
        for one in data or ()
        if isinstance(one, Mapping) and (one.get("started_at") or 0) >= (success["ended_at"] or success["started_at"])
    ]
