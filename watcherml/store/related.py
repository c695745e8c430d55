"""What else the store holds beside one run: failures of the same class, earlier successes, the last points."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from watcherml.store.claims import VERIFIED, backed
from watcherml.store.database import Database
from watcherml.store.runs import Row
from watcherml.store.sound import each

_FAILURES = """
SELECT c.run_id, r.project, r.origin, r.config, c.failure_class, c.subkind, c.sentence, c.created_at, c.resolved_at,
    c.resolved_note,
    (SELECT g.campaign_id FROM campaigns g WHERE g.source_run_id = c.run_id ORDER BY g.created_at DESC LIMIT 1)
        AS campaign_id,
    (SELECT v.campaign_id FROM campaigns g JOIN verdicts v USING (campaign_id)
        WHERE g.source_run_id = c.run_id AND v.status = 'verified' ORDER BY v.at DESC LIMIT 1) AS verified_campaign_id,
    {extracts}
FROM capsules c JOIN runs r USING (run_id)
WHERE c.failure_class = :failure_class AND c.created_at <= :before AND c.run_id <> :run_id AND r.role = 'user'
ORDER BY c.created_at DESC, c.capsule_id DESC LIMIT :limit"""
_SUCCESSES = """
SELECT run_id, project, started_at, ended_at, last_step, config, device, facts FROM runs
WHERE project = :project AND status = 'success' AND role = 'user' AND origin = 'here' AND started_at <= :before
    AND run_id <> :run_id
ORDER BY started_at DESC LIMIT :limit"""
_RANGES = """
SELECT source_id, first_point, last_point FROM metric_ranges WHERE run_id = ? ORDER BY last_point DESC"""
_POINTS = """
SELECT n.name, m.step, m.value FROM metrics m JOIN metric_names n ON n.source_id = ? AND n.key = m.key
WHERE m.rowid BETWEEN ? AND ? ORDER BY m.rowid"""


def failures(
    database: Database, run_id: str, failure_class: str, before: float, limit: int, paths: Mapping[str, str]
) -> list[Row]:
    """Return capsules of other runs that are of one class, newest first, at most one a run and ``limit`` looked at.

    ``paths`` names columns and where in the document they stand: ``{"phase": "$.value.failure.phase"}``. ``before``
    is in seconds since 1970. Trials of campaigns are left out.
    """
    names = list(paths)
    # All paths in one call: the document is parsed once. With the first one there are always several, hence an array.
    places = ["$.kind", *paths.values()]
    marks = ", ".join(f":path{number}" for number in range(len(places)))
    values: dict[str, Any] = {"run_id": run_id, "failure_class": failure_class, "before": before, "limit": limit}
    values.update((f"path{number}", place) for number, place in enumerate(places))
    query = _FAILURES.format(extracts=f"json_extract(c.document, {marks}) AS extracted")
    with database.reading() as connection:
        rows = [_without_forged_claim(connection, dict(row)) for row in connection.execute(query, values).fetchall()]
    found: dict[str, Row] = {}
    for row in rows:
        columns = row
        columns.update(zip(names, json.loads(columns.pop("extracted"))[1:], strict=True))
        columns["config"] = json.loads(columns["config"])
        found.setdefault(columns["run_id"], columns)
    return list(found.values())


def _without_forged_claim(connection: sqlite3.Connection, row: Row) -> Row:
    verified = row["verified_campaign_id"]
    claim = {"campaign_id": verified, "status": VERIFIED}
    if verified is not None and not each([claim], lambda one: backed(connection, one)):
        row["verified_campaign_id"] = None
    return row


def verified_changes(database: Database, campaign_id: str) -> list[Row]:
    """Return what the candidate of a verified campaign changed: path, before and after (decoded), then variables.

    A variable of the environment has ``before`` None. Empty where the campaign has no verdict here.
    """
    with database.reading() as connection:
        row = connection.execute(
            "SELECT v.candidate_id, r.document FROM campaigns g JOIN verdicts v USING (campaign_id)"
            " JOIN records r ON r.digest = g.plan_digest WHERE g.campaign_id = ? AND v.status = 'verified'",
            (campaign_id,),
        ).fetchone()
    if row is None:
        return []
    proposals = json.loads(row[1])["value"]["proposals"]
    chosen: dict[str, Any] = next((one for one in proposals if one["proposal_id"] == row[0]), {})
    changes = [
        {"path": ".".join(one["path"]), "before": one["before"], "after": one["after"]}
        for one in chosen.get("changes", ())
    ]
    variables = sorted(chosen.get("environment", {}).items())
    return changes + [{"path": name, "before": None, "after": value} for name, value in variables]


def successes(database: Database, run_id: str, project: str, before: float, limit: int) -> list[Row]:
    """Return this store's own runs of a project that succeeded, started at ``before`` or earlier, newest first.

    Imported runs and trials of campaigns are left out; ``config``, ``device`` and ``facts`` are decoded.
    """
    values = {"run_id": run_id, "project": project, "before": before, "limit": limit}
    with database.reading() as connection:
        rows = [dict(row) for row in connection.execute(_SUCCESSES, values)]
    for row in rows:
        for key in ("config", "device", "facts"):
            row[key] = None if row[key] is None else json.loads(row[key])
    return rows


def last_points(database: Database, run_id: str, limit: int) -> list[tuple[str, int | None, Any]]:
    """Return the last ``limit`` metric points of a run as (name, step, value), oldest first; a NaN is None.

    Reads no more points than it returns, however long the run was.
    """
    found: list[tuple[str, int | None, Any]] = []
    with database.reading() as connection:
        for source, first, last in connection.execute(_RANGES, (run_id,)).fetchall():
            left = limit - len(found)
            if left <= 0:
                break
            rows = connection.execute(_POINTS, (source, max(first, last - left + 1), last)).fetchall()
            found = [tuple(row) for row in rows] + found
    return found
