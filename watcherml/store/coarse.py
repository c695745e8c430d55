"""The shape of metrics that are too long to be looked at point by point, in plain passes over a run's own rows.

A stretch of a run is a span of row numbers, so that SQLite neither sorts nor numbers a million rows: of every metric in
it the lowest and the highest value stay and a NaN is noted. Where in its stretch a value stood is not kept, so this is
for drawing; ``points.thinned`` gives real points.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

Row = dict[str, Any]
_NAN = float("nan")
_SPANS = "SELECT source_id, first_point, last_point FROM metric_ranges WHERE run_id = ? ORDER BY first_point"
_STRETCH = """
SELECT key, MIN(value), MAX(value), COUNT(*) - COUNT(value), MAX(point) FROM metrics
WHERE point BETWEEN ? AND ? GROUP BY key"""
# GROUP BY sorts the stretch, which takes as long as three or four plain passes over it.
_OF_ONE = """
SELECT MIN(value), MAX(value), COUNT(*) - COUNT(value), MAX(point) FROM metrics
WHERE point BETWEEN ? AND ? AND key = ?"""
_FEW = 3
_PLACE = "SELECT step, at, value FROM metrics WHERE point = ?"


def count(connection: sqlite3.Connection, run_id: str) -> int:
    """Return how many points a run has, of all metrics and processes."""
    row = connection.execute(
        "SELECT SUM(last_point - first_point + 1) FROM metric_ranges WHERE run_id = ?", (run_id,)
    ).fetchone()
    return int(row[0] or 0)


def coarse(connection: sqlite3.Connection, run_id: str, names: Sequence[str], stretches: int) -> list[Row]:
    """Return name, step, value and at of metrics, in their order: of each stretch the lowest value at its beginning and
    the highest at its end, a NaN between them if there is one, and each metric's last point as it is."""
    spans = connection.execute(_SPANS, (run_id,)).fetchall()
    known = {
        (int(row[0]), int(row[1])): str(row[2])
        for row in connection.execute(
            "SELECT source_id, n.key, n.name FROM metric_sources JOIN metric_names n USING (source_id)"
            " WHERE run_id = ?",
            (run_id,),
        )
        if row[2] in set(names)
    }
    keys: dict[int, list[int]] = {}
    for source, key in known:
        keys.setdefault(source, []).append(key)
    size = max(1, -(-sum(last - first + 1 for _, first, last in spans) // stretches))
    found: list[Row] = []
    ends: dict[str, int] = {}
    for source, first, last in _cut(spans, size):
        begin, end = connection.execute(_PLACE, (first,)).fetchone(), connection.execute(_PLACE, (last,)).fetchone()
        for key, low, high, odd, final in _extremes(connection, keys.get(source, []), first, last):
            name = known.get((source, key))
            if name is None:
                continue
            values = [(begin, low), *([(begin, _NAN)] if odd else []), (end, high)]
            found += [_row(name, place, value) for place, value in values if value is not None]
            ends[name] = int(final)
    for name, point in ends.items():
        place = connection.execute(_PLACE, (point,)).fetchone()
        found.append(_row(name, place, _NAN if place[2] is None else place[2]))
    return found


def _extremes(connection: sqlite3.Connection, keys: Sequence[int], first: int, last: int) -> Iterator[Sequence[Any]]:
    """Yield key, lowest, highest, number of NaN and last point of each metric in a stretch, of ``keys`` at least."""
    if len(keys) > _FEW:
        yield from connection.execute(_STRETCH, (first, last))
        return
    for key in keys:
        row = connection.execute(_OF_ONE, (first, last, key)).fetchone()
        if row[-1] is not None:
            yield (key, *row)


def _cut(spans: Sequence[Sequence[int]], size: int) -> Iterator[tuple[int, int, int]]:
    for source, first, last in spans:
        for start in range(first, last + 1, size):
            yield source, start, min(start + size - 1, last)


def _row(name: str, place: Sequence[Any], value: float) -> Row:
    return {"name": name, "step": place[0], "value": value, "at": place[1]}
