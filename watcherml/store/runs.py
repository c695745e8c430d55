"""Rows of runs, their metrics, samples and artifacts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from watcherml.errors import NotFound
from watcherml.platform import ProcessId
from watcherml.store import journal
from watcherml.store.database import Database

Row = dict[str, Any]
_JSON_COLUMNS = ("config", "lossy_paths", "redacted_paths", "device", "facts", "receipt")


@dataclass(frozen=True)
class NewRun:
    """What a run's first row holds; times in seconds since 1970, config as plain JSON."""

    run_id: str
    project: str
    role: str
    started_at: float
    process: ProcessId
    config: Mapping[str, Any]
    lossy_paths: Sequence[str] = ()
    redacted_paths: Sequence[str] = ()
    device: Mapping[str, Any] | None = None
    campaign_id: str | None = None
    trial_id: str | None = None


class Runs:
    """Reads and writes of run rows."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.spool_folder = database.folder / "spool"

    def add(self, run: NewRun) -> None:
        """Insert a running run."""
        with self._database.writing() as connection:
            connection.execute(
                "INSERT INTO runs (run_id, project, role, campaign_id, trial_id, status, started_at, heartbeat_at, pid,"
                " process_started, boot_id, config, lossy_paths, redacted_paths, device)"
                " VALUES (?, ?, ?, ?, ?, 'running', ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    run.run_id, run.project, run.role, run.campaign_id, run.trial_id, run.started_at, run.started_at,
                    run.process.pid, run.process.started, run.process.boot_id, json.dumps(dict(run.config)),
                    json.dumps(list(run.lossy_paths)), json.dumps(list(run.redacted_paths)),
                    None if run.device is None else json.dumps(dict(run.device)),
                ),
            )  # fmt: skip

    def beat(self, run_id: str, at: float, last_step: int | None, sample: Row | None) -> None:
        """Store a heartbeat, a sample if there is one, and the metric points so far."""
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE runs SET heartbeat_at = ?, last_step = COALESCE(?, last_step) WHERE run_id = ?"
                " AND status = 'running'",
                (at, last_step, run_id),
            )
            if sample is not None:
                _insert(connection, "samples", {"run_id": run_id, **sample})
            journal.fold(connection, self.spool_folder, run_id)

    def note(self, run_id: str, facts: Mapping[str, Any], device: Mapping[str, Any] | None = None) -> None:
        """Merge facts (git, environment, dataset, machine ...) into the run's row."""
        with self._database.writing() as connection:
            row = connection.execute("SELECT facts FROM runs WHERE run_id = ?", (run_id,)).fetchone()
            if row is None:
                return
            merged = {**json.loads(row[0]), **facts}
            connection.execute("UPDATE runs SET facts = ? WHERE run_id = ?", (json.dumps(merged), run_id))
            if device is not None:
                connection.execute("UPDATE runs SET device = ? WHERE run_id = ?", (json.dumps(dict(device)), run_id))

    def end(
        self, run_id: str, status: str, reason: str, at: float, last_step: int | None, receipt: Row | None = None
    ) -> None:
        """Close a run that is still running and fold its last points; an ended run keeps its first ending."""
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE runs SET status = ?, end_reason = ?, ended_at = ?, heartbeat_at = ?,"
                " last_step = COALESCE(?, last_step), receipt = ? WHERE run_id = ? AND status = 'running'",
                (status, reason, at, at, last_step, None if receipt is None else json.dumps(receipt), run_id),
            )
            journal.fold(connection, self.spool_folder, run_id, final=True)
            journal.discard(connection, self.spool_folder, run_id)

    def reconcile(self, is_alive: Callable[[ProcessId], bool], now: float) -> list[str]:
        """Mark runs whose process is gone as killed, keeping their last heartbeat as the end; returns their ids."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT run_id, pid, process_started, boot_id, heartbeat_at, last_step FROM runs"
                " WHERE status = 'running'"
            ).fetchall()
        gone = [row for row in rows if not is_alive(ProcessId(row[1], row[2], row[3]))]
        for row in gone:
            self.end(row["run_id"], "killed", "its process is gone", min(now, row["heartbeat_at"]), row["last_step"])
        return [row["run_id"] for row in gone]

    def fold(self, run_id: str) -> None:
        """Bring a run's spooled points into the metrics table now."""
        with self._database.writing() as connection:
            journal.fold(connection, self.spool_folder, run_id)

    def get(self, run_id: str) -> Row:
        """Return one run with its JSON columns decoded; ``NotFound`` if there is none."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT * FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        if row is None:
            raise NotFound(f"no run {run_id[:100]!r} in {self._database.folder}", remedy="`watcher runs` lists them.")
        return _decode(row)

    def listing(
        self, *, project: str | None = None, status: str | None = None, role: str | None = "user", limit: int = 100
    ) -> list[Row]:
        """Return ``run_summary`` rows, newest first."""
        clauses, values = where(project=project, status=status, role=role)
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT * FROM run_summary {clauses} ORDER BY started_at DESC, run_id LIMIT ?", (*values, limit)
            ).fetchall()
        return [_decode(row) for row in rows]

    def metrics(self, run_id: str, names: Sequence[str] | None = None) -> list[Row]:
        """Return metric points (name, step, value, at) in the order they were logged; NaN comes back as NaN."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT name, step, value, at FROM metric_points WHERE run_id = ? ORDER BY point", (run_id,)
            ).fetchall()
        found = []
        for row in rows:
            if names is None or row["name"] in names:
                value = float("nan") if row["value"] is None else row["value"]
                found.append({"name": row["name"], "step": row["step"], "value": value, "at": row["at"]})
        return found

    def samples(self, run_id: str, limit: int = 5_000) -> list[Row]:
        """Return resource samples, oldest first."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT * FROM samples WHERE run_id = ? ORDER BY at LIMIT ?", (run_id, limit)
            ).fetchall()
        return [dict(row) for row in rows]

    def add_artifact(self, run_id: str, path: str, size_bytes: int, sha256: str, at: float) -> None:
        """Record a reference to a file; its bytes stay where they are."""
        with self._database.writing() as connection:
            _insert(connection, "artifacts", {
                "run_id": run_id, "path": path, "size_bytes": size_bytes, "sha256": sha256, "at": at,
            })  # fmt: skip

    def artifacts(self, run_id: str) -> list[Row]:
        """Return a run's artifact references."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT * FROM artifacts WHERE run_id = ? ORDER BY at", (run_id,)).fetchall()
        return [dict(row) for row in rows]


def where(**conditions: Any) -> tuple[str, list[Any]]:
    """Build a WHERE clause from the conditions that are not None; names are the caller's constants."""
    used = {key: value for key, value in conditions.items() if value is not None}
    text = " AND ".join(f"{key} = ?" for key in used)
    return (f"WHERE {text}" if text else ""), list(used.values())


def _insert(connection: sqlite3.Connection, table: str, row: Row) -> None:
    columns = ", ".join(row)
    marks = ", ".join("?" for _ in row)
    connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", tuple(row.values()))


def _decode(row: sqlite3.Row) -> Row:
    found = dict(row)
    for key in _JSON_COLUMNS:
        if isinstance(found.get(key), str):
            found[key] = json.loads(found[key])
    return found
