"""A run's rows as a ``Portable``, and a ``Portable`` as rows of somebody else's run.

Both work on a connection of the caller's: what is read is of one moment, what is written is one transaction.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Sequence
from typing import Any

from watcherml.errors import InvalidValue
from watcherml.sealed.record import Record
from watcherml.store.portable import MAX_POINTS, SPECIAL, TABLES, Points, Portable, RunRow, digests_in, plain, special
from watcherml.store.sound import sound

# Under this key of its facts an imported run says where it comes from.
ORIGIN_FACT = "imported"
# The digests of the results that came with imports, by run: of one that came with several only the first has the row.
CAME_WITH = (
    "SELECT r.run_id, d.value FROM runs r, json_each(CASE WHEN json_valid(r.facts) THEN r.facts ELSE '{}' END,"
    f" '$.{ORIGIN_FACT}.results') d WHERE r.origin = 'imported'"
)
SOURCE = "imported"  # stands where a recorded run has its process

_JSON = ("config", "lossy_paths", "redacted_paths", "device", "facts", "receipt")
_ROW = (
    "run_id", "project", "role", "campaign_id", "trial_id", "status", "end_reason", "started_at", "ended_at",
    "heartbeat_at", *_JSON, "last_step", "title",
)  # fmt: skip


def collect(connection: sqlite3.Connection, run_id: str) -> Portable | None:
    """Return a run with all that belongs to it, None if there is no such run.

    Raises ``InvalidValue`` for a run of more points than an archive holds, or with a value that no archive can hold,
    ``DamagedRow`` for one whose row holds what nobody wrote.
    """
    row = connection.execute(f"SELECT {', '.join(_ROW)} FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if row is None:
        return None
    values = sound("runs", dict(zip(_ROW, row, strict=True)))
    for key in _JSON:
        values[key] = None if values[key] is None else plain(values[key])
    origin = values["facts"].pop(ORIGIN_FACT, None)
    original = origin.get("run_id", run_id) if isinstance(origin, dict) else run_id
    capsules = connection.execute("SELECT document FROM capsules WHERE run_id = ? ORDER BY capsule_id", (run_id,))
    return Portable(
        RunRow.from_data(values, f"run {run_id[:100]}"),
        original,
        _points(connection, run_id),
        {name: _table(connection, name, run_id) for name in TABLES},
        tuple(str(one[0]) for one in capsules),
        _blobs(connection, json.dumps(values["facts"])),
    )


def adopt(connection: sqlite3.Connection, found: Portable, run_id: str, capsules: Sequence[Record], origin: Any) -> int:
    """Insert a run from elsewhere under an id that is free, and return how many points came with it.

    ``capsules`` are its decoded capsules in order; ``origin`` (plain JSON) says where it comes from. A run that was
    going on when it was exported will never end here, and is stored as interrupted.
    """
    row = found.run.to_data()
    row["facts"][ORIGIN_FACT] = origin
    row.update(run_id=run_id, origin="imported", pid=0, process_started=0.0, boot_id="")
    if row["status"] == "running":
        row.update(
            status="interrupted", ended_at=row["heartbeat_at"], end_reason="it was going on when it was exported"
        )
    for key in _JSON:
        row[key] = None if row[key] is None else json.dumps(row[key])
    _insert(connection, "runs", row)
    for name, rows in found.tables.items():
        for one in rows:
            _insert(connection, name, {"run_id": run_id, **_inward(name, one.to_data(), run_id)})
    for document, capsule in zip(found.capsules, capsules, strict=True):
        _insert(connection, "capsules", {"run_id": run_id, "document": document, **_facts_of(capsule)})
    for digest, data in found.blobs.items():
        media = "text/x-diff" if digest == found.patch else "application/octet-stream"
        connection.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?, ?)", (digest, media, data))
    return _insert_points(connection, found.points, run_id)


def _points(connection: sqlite3.Connection, run_id: str) -> Points:
    count = connection.execute(
        "SELECT COALESCE(SUM(last_point - first_point + 1), 0) FROM metric_ranges WHERE run_id = ?", (run_id,)
    ).fetchone()[0]
    if count > MAX_POINTS:
        raise InvalidValue(
            f"run {run_id}",
            expected=f"at most {MAX_POINTS:,} metric points for an export",
            got=f"{count:,}",
            remedy="`watcher pack` copies the whole store, however many points it has.",
        )
    found = Points([], [], [], [], [])
    keys: dict[str, int] = {}
    rows = connection.execute(
        "SELECT name, step, value, at FROM metric_points WHERE run_id = ? ORDER BY point", (run_id,)
    )
    for name, step, value, at in rows:
        found.keys.append(keys.setdefault(name, len(keys)))
        found.steps.append(step)
        found.values.append("nan" if value is None else value if math.isfinite(value) else special(value))
        found.ats.append(at)
    found.names.extend(keys)
    return found


def _table(connection: sqlite3.Connection, name: str, run_id: str) -> tuple[Record, ...]:
    kind = TABLES[name]
    columns = list(kind.__dataclass_fields__)  # type: ignore[attr-defined]
    rows = connection.execute(f"SELECT {', '.join(columns)} FROM {name} WHERE run_id = ? ORDER BY rowid", (run_id,))
    found = []
    for row in rows:
        values = {key: _sample(value) for key, value in zip(columns, row, strict=True)}
        if name == "cells":
            values["session_id"] = values["session_id"].removeprefix(_session(run_id, ""))
        found.append(kind.from_data(values, f"{name} of run {run_id[:100]}"))
    return tuple(found)


def _sample(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return plain(value)


def _blobs(connection: sqlite3.Connection, facts: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for digest in digests_in(facts):
        row = connection.execute("SELECT data FROM blobs WHERE digest = ?", (digest,)).fetchone()
        if row is not None:
            found[digest] = bytes(row[0])
    return found


def _session(run_id: str, session_id: str) -> str:
    # Cells are told apart by session and number, and a session's id from elsewhere must not meet one from here.
    return f"{SOURCE}/{run_id}/{session_id}"


def _inward(table: str, row: dict[str, Any], run_id: str) -> dict[str, Any]:
    return {**row, "session_id": _session(run_id, row["session_id"])} if table == "cells" else row


def _facts_of(capsule: Any) -> dict[str, Any]:
    failure = capsule.failure
    return {
        "digest": capsule.digest,
        "failure_class": failure.class_,
        "subkind": failure.subkind,
        "sentence": capsule.headline,
        "created_at": capsule.created_at,
    }


def _insert_points(connection: sqlite3.Connection, points: Points, run_id: str) -> int:
    if not len(points):
        return 0
    connection.execute("INSERT INTO metric_sources (run_id, process) VALUES (?, ?)", (run_id, SOURCE))
    source = connection.execute("SELECT source_id FROM metric_sources WHERE run_id = ?", (run_id,)).fetchone()[0]
    connection.executemany(
        "INSERT INTO metric_names (source_id, key, name) VALUES (?, ?, ?)",
        ((source, key, name) for key, name in enumerate(points.names)),
    )
    before = connection.execute("SELECT COALESCE(MAX(rowid), 0) FROM metrics").fetchone()[0]
    connection.executemany(
        "INSERT INTO metrics (key, step, value, at) VALUES (?, ?, ?, ?)",
        (
            (key, step, SPECIAL[value] if isinstance(value, str) else float(value), at)
            for key, step, value, at in zip(points.keys, points.steps, points.values, points.ats, strict=True)
        ),
    )
    connection.execute(
        "INSERT INTO metric_ranges VALUES (?, ?, ?, ?)", (run_id, source, before + 1, before + len(points))
    )
    return len(points)


def _insert(connection: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    columns, marks = ", ".join(row), ", ".join("?" for _ in row)
    connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", tuple(row.values()))
