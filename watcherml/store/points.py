"""Metric points as a reader wants them: a page at a time, as so many buckets, or thinned to so many points.

Everything here reads the ranges of one run and nothing of others, however many points the store holds. A NaN, which is
stored as NULL, comes back as NaN.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from watcherml.errors import InvalidValue

Row = dict[str, Any]
DEFAULT_BUCKETS = 500
_FEWEST = 4  # lowest, highest, a NaN, and the last
_NAN = float("nan")
# The ranges lead, see the view metric_points.
_OWN = """
    FROM metric_ranges g CROSS JOIN metrics m ON m.rowid BETWEEN g.first_point AND g.last_point
    JOIN metric_names n ON n.source_id = g.source_id AND n.key = m.key
    WHERE g.run_id = :run_id AND (:names IS NULL OR n.name IN (SELECT value FROM json_each(:names)))"""
# Of many runs: each join is a CROSS JOIN, so that a run is chosen before its points are read, and the order is the one
# in which they are read.
_ACROSS = """
SELECT g.run_id, r.project, n.name, m.step, m.value, m.at
FROM metric_ranges g CROSS JOIN runs r ON r.run_id = g.run_id
CROSS JOIN metrics m ON m.rowid BETWEEN g.first_point AND g.last_point
CROSS JOIN metric_names n ON n.source_id = g.source_id AND n.key = m.key"""
_ACROSS_ORDER = "ORDER BY g.run_id, g.first_point, g.rowid, m.rowid"
_PAGE = f"""
SELECT n.name, m.step, m.value, m.at, m.rowid AS point {_OWN} AND g.last_point > :after AND m.rowid > :after
ORDER BY m.rowid LIMIT :limit"""
# Equal counts in the order of logging: that holds for points without a step and for steps that begin again, too.
_PLACED = f"""
placed AS (
    SELECT name, step, value, at, point,
        CASE WHEN count <= :whole THEN number ELSE number * :buckets / count END AS bucket
    FROM (SELECT n.name, m.step, m.value, m.at, m.rowid AS point, COUNT(*) OVER (PARTITION BY n.name) AS count,
            ROW_NUMBER() OVER (PARTITION BY n.name ORDER BY m.rowid) - 1 AS number {_OWN}))"""
# In an aggregate with one MIN or MAX the bare columns are those of the row that has it (SQLite, "Bare columns in an
# aggregate query"), so the last values are found apart from the extremes.
_SERIES = f"""
WITH {_PLACED},
ends AS (SELECT bucket, MAX(point), value AS last FROM placed GROUP BY bucket),
parts AS (
    SELECT bucket, step, at, CASE WHEN value BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308 THEN value END
        AS finite FROM placed)
SELECT MIN(step), MAX(step), MIN(finite), MAX(finite), AVG(finite), last, COUNT(*), COUNT(*) - COUNT(finite),
    MIN(at), MAX(at)
FROM parts JOIN ends USING (bucket) GROUP BY bucket ORDER BY bucket"""
_THINNED = f"""
WITH {_PLACED}
SELECT name, step, value, at, point FROM (
    SELECT MIN(value), name, step, value, at, point FROM placed GROUP BY name, bucket
    UNION ALL SELECT MAX(value), name, step, value, at, point FROM placed GROUP BY name, bucket
    UNION ALL SELECT MIN(point), name, step, value, at, point FROM placed WHERE value IS NULL GROUP BY name, bucket
    UNION ALL SELECT MAX(point), name, step, value, at, point FROM placed GROUP BY name)
GROUP BY point ORDER BY point"""
_THINNED_SAMPLES = """
WITH placed AS (
    SELECT id, CASE WHEN count <= :most THEN number ELSE number * :buckets / count END AS bucket,
        COALESCE(device_reserved_bytes, device_allocated_bytes, rss_bytes) AS held, number = count - 1 AS is_last
    FROM (SELECT s.*, s.rowid AS id, COUNT(*) OVER () AS count, ROW_NUMBER() OVER (ORDER BY at) - 1 AS number
        FROM samples s WHERE run_id = :run_id))
SELECT * FROM samples WHERE rowid IN (
    SELECT id FROM (SELECT MAX(held), id FROM placed GROUP BY bucket) UNION SELECT id FROM placed WHERE is_last)
ORDER BY at"""


class Bucket(NamedTuple):
    """A stretch of one metric: so many neighbouring ``points`` in the order they were logged.

    ``min``, ``max`` and ``mean`` are over the finite values and NaN if there are none; ``unusual`` counts the values
    that are NaN or infinite; ``last`` is the last value as it is. Steps are None where no point has one. Times are
    seconds since 1970.
    """

    first_step: int | None
    last_step: int | None
    min: float
    max: float
    mean: float
    last: float
    points: int
    unusual: int
    first_at: float
    last_at: float


def series(connection: sqlite3.Connection, run_id: str, name: str, buckets: int = DEFAULT_BUCKETS) -> list[Bucket]:
    """Return one metric of one run as at most ``buckets`` stretches of equal length, in one query."""
    _check("buckets", buckets, 1)
    values = {"run_id": run_id, "names": json.dumps([name]), "whole": 0, "buckets": buckets}
    rows = connection.execute(_SERIES, values)
    return [
        Bucket(row[0], row[1], _number(row[2]), _number(row[3]), _number(row[4]), _number(row[5]), *row[6:])
        for row in rows
    ]


def page(
    connection: sqlite3.Connection,
    run_id: str,
    names: Sequence[str] | None = None,
    *,
    after: int = 0,
    limit: int | None = None,
) -> list[Row]:
    """Return points (name, step, value, at, point) in the order they were logged.

    ``after`` is the ``point`` of the last row of the page before, ``limit`` the most rows of this one.
    """
    if limit is not None:
        _check("limit", limit, 1)
    values = {"run_id": run_id, "names": _names(names), "after": after, "limit": -1 if limit is None else limit}
    return [_row(row) for row in connection.execute(_PAGE, values)]


def across(clause: str) -> str:
    """Return the query for points of many runs (run_id, project, name, step, value, at), by run, then as logged.

    ``clause`` is a WHERE clause or empty; it may name ``g.run_id``, ``r.project``, ``n.name`` and ``m.at``.
    """
    return f"{_ACROSS} {clause} {_ACROSS_ORDER}"


def thinned(
    connection: sqlite3.Connection, run_id: str, names: Sequence[str] | None = None, max_points: int = DEFAULT_BUCKETS
) -> list[Row]:
    """Return at most ``max_points`` points of each metric, all of them real ones: name, step, value, at, point.

    Each stretch of a longer metric keeps its lowest, its highest and its first NaN, so that no spike is smoothed away;
    the last point is always there.
    """
    _check("max_points", max_points, _FEWEST)
    values = {"run_id": run_id, "names": _names(names), "whole": max_points, "buckets": (max_points - 1) // 3}
    return [_row(row) for row in connection.execute(_THINNED, values)]


def thinned_samples(connection: sqlite3.Connection, run_id: str, max_points: int) -> list[Row]:
    """Return at most ``max_points`` rows of ``samples``, oldest first: of each stretch the one that held most, and the
    last one. The connection's rows must be ``sqlite3.Row``."""
    _check("max_points", max_points, _FEWEST)
    values = {"run_id": run_id, "most": max_points, "buckets": max_points - 1}
    return [dict(row) for row in connection.execute(_THINNED_SAMPLES, values)]


def _names(names: Sequence[str] | None) -> str | None:
    return None if names is None else json.dumps(list(names))


def _row(row: Sequence[Any]) -> Row:
    return {"name": row[0], "step": row[1], "value": _number(row[2]), "at": row[3], "point": row[4]}


def _number(value: float | None) -> float:
    return _NAN if value is None else value


def _check(field: str, value: int, least: int) -> None:
    if type(value) is not int or value < least:
        raise InvalidValue(field, expected=f"a whole number of at least {least}", got=repr(value)[:80])
