"""What a page of a list asks: its rows, how many there are in all, and sums. Everything is counted and cut in SQL.

Functions of one connection, so that the rows and their number are of one moment.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from watcherml.store.claims import VERIFIED, backed, count_backed
from watcherml.store.older import CLAIMED
from watcherml.store.runs import COUNTED, where, with_counted_peak
from watcherml.store.sound import LAST_SECOND, all_sound, asked, each, sound

Row = dict[str, Any]
# How a list of campaigns can be cut; ``unfinished`` are those without a verdict.
UNFINISHED = "unfinished"
_LAST = "c.capsule_id = (SELECT MAX(o.capsule_id) FROM capsules o WHERE o.run_id = c.run_id)"
_RUNS_OF_PEOPLE = "role = 'user'"


class Cut(NamedTuple):
    """Which part of a list: ``limit`` rows after the first ``offset``."""

    limit: int
    offset: int = 0


class Found(NamedTuple):
    """A page of a list, and how many rows the whole list has."""

    rows: list[Row]
    total: int


def run_counts(connection: sqlite3.Connection) -> dict[str, int]:
    """Return how many runs have each status, without the runs of trials."""
    rows = connection.execute(f"SELECT status, COUNT(*) FROM runs WHERE {_RUNS_OF_PEOPLE} GROUP BY status")
    return {str(row[0]): int(row[1]) for row in rows}


def campaign_counts(connection: sqlite3.Connection) -> dict[str, int]:
    """Return how many campaigns of this store have each status; ``unfinished`` are those without a verdict."""
    rows = connection.execute(
        f"SELECT COALESCE(v.status, '{UNFINISHED}'), COUNT(*) FROM campaigns c LEFT JOIN verdicts v USING (campaign_id)"
        " GROUP BY 1"
    )
    return {str(row[0]): int(row[1]) for row in rows}


def runs(
    connection: sqlite3.Connection,
    cut: Cut,
    *,
    project: str | None = None,
    status: str | None = None,
    text: str | None = None,
    trials: bool = False,
) -> Found:
    """Return rows of ``run_summary`` without configurations, newest first; ``text`` stands in their id or title."""
    clauses, values = where(project=project, status=status, role=None if trials else "user")
    if text is not None:
        clauses += f" {'AND' if clauses else 'WHERE'} (instr(lower(run_id), lower(?)) OR instr(lower(title), lower(?)))"
        values += [text] * 2  # SQLite lowers ASCII alone: both sides by it, or an umlaut is never found
    columns = (
        "run_id, project, title, role, status, started_at, duration_s, last_step, device_kind, failure_class,"
        " peak_rss_bytes, peak_device_bytes, campaign_id, trial_id, origin"
    )
    # The page is chosen before the view's sums are made: they look at the samples of each run.
    chosen = f"SELECT run_id FROM runs {clauses} ORDER BY started_at DESC, run_id LIMIT ? OFFSET ?"
    rows = asked(
        connection,
        f"SELECT {columns}, {COUNTED} FROM run_summary WHERE run_id IN ({chosen}) ORDER BY started_at DESC, run_id",
        (*values, *cut),
    )
    return Found(
        [with_counted_peak(row) for row in all_sound("runs", rows)], _count(connection, f"runs {clauses}", values)
    )


_VERIFIED_OF = (
    "SELECT campaign_id FROM campaigns JOIN verdicts USING (campaign_id) WHERE campaigns.project = ?"
    " AND verdicts.status = ?"
)


def projects(connection: sqlite3.Connection, cut: Cut, *, text: str | None = None) -> Found:
    """Return projects, the one that was used last first: runs by status, open failures, campaigns, verified ones."""
    clause = f"WHERE {_RUNS_OF_PEOPLE}" + ("" if text is None else " AND instr(lower(project), lower(:text))")
    values = {"text": text, "limit": cut.limit, "offset": cut.offset}
    rows = connection.execute(
        f"""
WITH page AS (
    SELECT project, COUNT(*) AS runs, SUM(status = 'running') AS running, SUM(status = 'success') AS success,
        SUM(status IN ('failed', 'killed')) AS failed, MAX({_sane("started_at")}) AS last_at
    FROM runs {clause} GROUP BY project ORDER BY last_at DESC, project LIMIT :limit OFFSET :offset)
SELECT page.*,
    (SELECT COUNT(DISTINCT c.run_id) FROM capsules c JOIN runs r USING (run_id)
        WHERE r.project = page.project AND r.role = 'user' AND c.resolved_at IS NULL) AS open_failures,
    (SELECT COUNT(*) FROM campaigns k WHERE k.project = page.project) AS campaigns
FROM page ORDER BY last_at DESC, project""",
        values,
    ).fetchall()
    total = connection.execute(f"SELECT COUNT(DISTINCT project) FROM runs {clause}", values).fetchone()[0]
    odd = f"SELECT run_id, project, started_at FROM runs {clause} AND {_sane('started_at')} IS NULL"
    all_sound("runs", connection.execute(odd, values).fetchall())
    found = all_sound("projects", [row for row in rows if row["last_at"] is not None])
    for row in found:
        row["verified"] = count_backed(connection, _VERIFIED_OF, (row["project"], VERIFIED))
    return Found(found, int(total))


def failures(
    connection: sqlite3.Connection,
    cut: Cut,
    *,
    project: str | None = None,
    failure_class: str | None = None,
    resolved: bool | None = None,
) -> Found:
    """Return rows of ``failure_summary``, newest first, one a run; those of trials stand with their campaign."""
    clauses, values = where(project=project, failure_class=failure_class)
    clauses += f" {'AND' if clauses else 'WHERE'} r.role = 'user' AND {_LAST}"
    if resolved is not None:
        clauses += f" AND c.resolved_at IS {'NOT ' if resolved else ''}NULL"
    source = f"capsules c JOIN runs r USING (run_id) {clauses}"
    rows = asked(
        connection,
        "SELECT c.run_id, r.project, r.title, r.origin, c.failure_class, c.subkind, c.sentence, c.created_at,"
        " c.resolved_at, c.resolved_by, c.resolved_note, COALESCE(json_extract(r.device, '$.kind'), 'none')"
        f" AS device_kind FROM {source} ORDER BY c.created_at DESC, c.capsule_id DESC LIMIT ? OFFSET ?",
        (*values, *cut),
    )
    return Found(all_sound("capsules", rows), _count(connection, source, values))


def failure_classes(connection: sqlite3.Connection, project: str | None = None) -> list[Row]:
    """Return failure_class, failures, open, projects and last_at of each class, the most frequent first."""
    clauses, values = where(project=project)
    source = (
        f"capsules c JOIN runs r USING (run_id) {clauses} {'AND' if clauses else 'WHERE'} r.role = 'user' AND {_LAST}"
    )
    sane = f"(typeof(c.failure_class) = 'text' AND {_sane('c.created_at')} IS NOT NULL)"
    odd = f"SELECT c.run_id, c.failure_class, c.created_at FROM {source} AND NOT {sane}"
    all_sound("capsules", connection.execute(odd, values).fetchall())
    rows = connection.execute(
        "SELECT c.failure_class, COUNT(*) AS failures, SUM(c.resolved_at IS NULL) AS open,"
        " COUNT(DISTINCT r.project) AS projects, MAX(c.created_at) AS last_at"
        f" FROM {source} AND {sane} GROUP BY 1 ORDER BY 2 DESC, 1",
        values,
    ).fetchall()
    return [dict(row) for row in rows]


def _sane(column: str) -> str:
    """Return SQL for a time, NULL where it is none: sums of many rows are not spoiled by one that is damaged."""
    return (
        f"CASE WHEN typeof({column}) IN ('integer', 'real') AND {column} BETWEEN 0 AND {LAST_SECOND} THEN {column} END"
    )


def campaigns(
    connection: sqlite3.Connection, cut: Cut, *, project: str | None = None, status: str | None = None
) -> Found:
    """Return rows of ``campaign_summary``, newest first; ``status`` may be ``unfinished``."""
    clauses, values = where(project=project, status=None if status == UNFINISHED else status)
    if status == UNFINISHED:
        clauses += f" {'AND' if clauses else 'WHERE'} status IS NULL"
    rows = connection.execute(
        f"SELECT * FROM campaign_summary {clauses} ORDER BY created_at DESC, campaign_id LIMIT ? OFFSET ?",
        (*values, *cut),
    ).fetchall()
    source = f"campaigns c LEFT JOIN verdicts v USING (campaign_id) {clauses}"
    return Found(
        each(rows, lambda row: backed(connection, sound("campaigns", row))), _count(connection, source, values)
    )


# Only a CASE is sure to look whether it is JSON first: one that is none would end the whole question.
_IS_JSON = "typeof(i.document) = 'text' AND json_valid(i.document)"
_IMPORTED = (
    f"FROM imports i WHERE CASE WHEN {_IS_JSON} THEN json_type(i.document, '$.value.verdict') = 'object' AND"
    " (:project IS NULL OR json_extract(i.document, '$.value.plan.source.project') = :project) END"
)


def _tell_damaged_imports(connection: sqlite3.Connection) -> None:
    odd = f"SELECT i.digest, i.document FROM imports i WHERE NOT ({_IS_JSON})"
    all_sound("imports", connection.execute(odd).fetchall())


def imported_campaigns(connection: sqlite3.Connection, cut: Cut, *, project: str | None = None) -> Found:
    """Return the campaigns that came with imported runs, newest first: what they claim, with the columns of
    ``campaign_summary``; ``status`` and ``sentence`` are their own."""
    values = {"project": project, "limit": cut.limit, "offset": cut.offset}
    rows = connection.execute(
        f"""
SELECT i.campaign_id, json_extract(i.document, '$.value.plan.source.project') AS project, i.run_id AS source_run_id,
    i.at AS created_at, 'imported' AS last_change, json_extract(i.document, '$.value.verdict.status') AS status,
    json_extract(i.document, '$.value.verdict.reason_code') AS reason_code,
    json_extract(i.document, '$.value.verdict.sentence') AS sentence,
    json_extract(i.document, '$.value.verdict.candidate_id') AS candidate_id,
    json_extract(i.document, '$.value.verdict.device_kind') AS device_kind, i.at AS ended_at,
    json_array_length(i.document, '$.value.trials') AS trials,
    (SELECT SUM(json_extract(t.value, '$.result.wall_seconds')) FROM json_each(i.document, '$.value.trials') t)
        AS trial_wall_s
{_IMPORTED} ORDER BY i.at DESC, i.campaign_id LIMIT :limit OFFSET :offset""",
        values,
    ).fetchall()
    total = connection.execute(f"SELECT COUNT(*) {_IMPORTED}", values).fetchone()[0]
    _tell_damaged_imports(connection)
    return Found(all_sound("campaigns", rows), int(total))


# What fixed a failure: a mark of a person, a verdict of this store, a claim of another store or of 0.1.
_REMEDIES = f"""
SELECT * FROM (
    SELECT 'resolved' AS kind, c.resolved_at AS at, r.project, c.run_id, c.failure_class, c.sentence AS failed,
        c.resolved_note AS told, c.resolved_by AS who, NULL AS campaign_id, NULL AS candidate_id
    FROM capsules c JOIN runs r USING (run_id) WHERE c.resolved_at IS NOT NULL AND r.role = 'user' AND {_LAST}
    UNION ALL
    SELECT v.status, v.at, k.project, k.source_run_id, c.failure_class, c.sentence, v.sentence, NULL, k.campaign_id,
        v.candidate_id
    FROM verdicts v JOIN campaigns k USING (campaign_id) JOIN capsules c ON c.run_id = k.source_run_id AND {_LAST}
    WHERE v.status = 'verified'
        OR (v.status = '{CLAIMED}' AND v.sentence LIKE 'Claimed by WatcherML 0.1: verified%')
    UNION ALL
    SELECT 'imported', i.at, json_extract(i.document, '$.value.plan.source.project'), i.run_id,
        json_extract(i.document, '$.value.plan.source.failure_class'),
        (SELECT c.sentence FROM capsules c WHERE c.run_id = i.run_id AND {_LAST}),
        json_extract(i.document, '$.value.verdict.sentence'), NULL, i.campaign_id,
        json_extract(i.document, '$.value.verdict.candidate_id')
    FROM imports i
    WHERE CASE WHEN {_IS_JSON} THEN json_extract(i.document, '$.value.verdict.status') = 'verified' END)"""


def remedies(
    connection: sqlite3.Connection, cut: Cut, *, project: str | None = None, failure_class: str | None = None
) -> Found:
    """Return what was done about failures, newest first.

    Columns: kind (``resolved``, ``verified``, ``imported`` or ``claimed_by_0.1``), at, project, run_id, failure_class,
    failed (the failure's sentence), told (the note or the verdict's sentence), who, campaign_id, candidate_id, and
    changes: of the candidate's proposal a list of path, before and after.
    """
    clauses, values = where(project=project, failure_class=failure_class)
    rows = connection.execute(f"{_REMEDIES} {clauses} ORDER BY at DESC, run_id LIMIT ? OFFSET ?", (*values, *cut))
    told = each(rows.fetchall(), lambda row: backed(connection, _sound_remedy(dict(row)), "kind"))
    found = [{**row, "changes": _changes(connection, row)} for row in told]
    _tell_damaged_imports(connection)
    return Found(found, _count(connection, f"({_REMEDIES}) {clauses}", values))


def _sound_remedy(row: Row) -> Row:
    """Return the row; ``DamagedRow`` names the table that it came from and the column there."""
    if row["kind"] == "resolved":
        names = {"at": "resolved_at", "failed": "sentence", "told": "resolved_note", "who": "resolved_by"}
        sound("capsules", {names.get(key, key): value for key, value in row.items()})
    else:
        sound("campaigns", {{"at": "ended_at", "told": "sentence"}.get(key, key): value for key, value in row.items()})
    return row


def _changes(connection: sqlite3.Connection, row: Row) -> list[Row]:
    if row["candidate_id"] is None:
        return []
    plan = "SELECT d.document FROM campaigns k JOIN records d ON d.digest = k.plan_digest WHERE k.campaign_id = ?"
    place = "$.value.proposals"
    if row["kind"] == "imported":
        plan = (
            f"SELECT i.document FROM imports i WHERE i.campaign_id = ? AND CASE WHEN {_IS_JSON}"
            " THEN json_type(i.document, '$.value.plan') = 'object' END"
        )
        place = "$.value.plan.proposals"
    found = connection.execute(
        f"SELECT json_extract(p.value, '$.changes') FROM ({plan} LIMIT 1) d, json_each(d.document, '{place}') p"
        " WHERE json_extract(p.value, '$.proposal_id') = ? LIMIT 1",
        (row["campaign_id"], row["candidate_id"]),
    ).fetchone()
    changes = json.loads(found[0]) if found is not None and found[0] else []
    return [one for one in changes if isinstance(one, dict)]


def present(connection: sqlite3.Connection, run_ids: Sequence[str]) -> set[str]:
    """Return those of the runs that are in the store: the run of a trial may have been pruned."""
    marks = ", ".join("?" * len(run_ids))
    rows = connection.execute(f"SELECT run_id FROM runs WHERE run_id IN ({marks})", list(run_ids))
    return {str(row[0]) for row in rows}


def metric_names(connection: sqlite3.Connection, run_id: str, cut: Cut) -> tuple[list[str], int]:
    """Return a run's metric names in the order in which they came, and how many there are."""
    source = "metric_sources s JOIN metric_names n USING (source_id) WHERE s.run_id = ?"
    rows = connection.execute(
        f"SELECT n.name FROM {source} GROUP BY n.name ORDER BY MIN(s.source_id), MIN(n.key) LIMIT ? OFFSET ?",
        (run_id, *cut),
    )
    total = connection.execute(f"SELECT COUNT(DISTINCT n.name) FROM {source}", (run_id,)).fetchone()[0]
    return [str(row[0]) for row in rows], int(total)


def cells(connection: sqlite3.Connection, run_id: str, cut: Cut) -> Found:
    """Return the executed cells of a run, the last one first."""
    rows = connection.execute(
        "SELECT * FROM cell_history WHERE run_id = ? ORDER BY started_at DESC, seq DESC LIMIT ? OFFSET ?",
        (run_id, *cut),
    ).fetchall()
    return Found(all_sound("cells", rows), _count(connection, "cells WHERE run_id = ?", [run_id]))


_GPUS = """
WITH placed AS (
    SELECT g.*, (ROW_NUMBER() OVER (PARTITION BY gpu_index ORDER BY at) - 1) * :buckets
        / COUNT(*) OVER (PARTITION BY gpu_index) AS bucket
    FROM gpu_samples g WHERE run_id = :run_id)
SELECT gpu_index, MIN(at) AS at, AVG(utilization_percent) AS utilization_percent, MAX(used_bytes) AS used_bytes,
    MAX(own_bytes) AS own_bytes, MAX(total_bytes) AS total_bytes
FROM placed GROUP BY gpu_index, bucket ORDER BY gpu_index, bucket"""


def gpu_series(connection: sqlite3.Connection, run_id: str, buckets: int) -> list[Row]:
    """Return at most so many stretches a GPU, oldest first: mean utilisation in percent, largest memory in bytes."""
    found = connection.execute(_GPUS, {"run_id": run_id, "buckets": buckets}).fetchall()
    return all_sound("gpu_samples", ({"run_id": run_id, **dict(row)} for row in found))


def _count(connection: sqlite3.Connection, source: str, values: list[Any]) -> int:
    return int(connection.execute(f"SELECT COUNT(*) FROM {source}", values).fetchone()[0])
