"""Rows of runs, their metrics, samples and artifacts.

Listing runs is what people type most: what only writers and the reconciliation need is imported where it is used.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from watcherml.errors import DamagedRow, StoreError
from watcherml.store import absent
from watcherml.store.database import Database
from watcherml.store.kept import Kept
from watcherml.store.sound import all_sound, asked, sound

if TYPE_CHECKING:
    from watcherml.platform import ProcessId

Row = dict[str, Any]
STATUSES = ("running", "success", "failed", "interrupted", "killed")
# Samples are seconds apart; the receipt has the counter's own peak, and says whose counter it was.
COUNTED = ", ".join(
    f"(SELECT json_extract(x.receipt, '$.{key}') FROM runs x WHERE x.run_id = run_summary.run_id) AS {name}"
    for key, name in (("peak_device_bytes", "counted_peak"), ("peak_source", "counted_by"))
)


class NewRun(NamedTuple):
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

    def to_row(self) -> Row:
        """Return the columns of a running run."""
        return {
            "run_id": self.run_id, "project": self.project, "role": self.role, "campaign_id": self.campaign_id,
            "trial_id": self.trial_id, "status": "running", "started_at": self.started_at,
            "heartbeat_at": self.started_at, "pid": self.process.pid, "process_started": self.process.started,
            "boot_id": self.process.boot_id, "config": json.dumps(dict(self.config)),
            "lossy_paths": json.dumps(list(self.lossy_paths)), "redacted_paths": json.dumps(list(self.redacted_paths)),
            "device": None if self.device is None else json.dumps(dict(self.device)),
        }  # fmt: skip


class Runs:
    """Reads and writes of run rows."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def spool_folder(self) -> Path:
        """Where the journals of runs lie."""
        return self._database.spool_folder

    @property
    def kept(self) -> Kept:
        """What the store has refused of runs that this process records."""
        return self._database.kept

    def add(self, run: NewRun) -> None:
        """Insert a running run."""
        with self._database.writing() as connection:
            _insert(connection, "runs", run.to_row())

    def beat(self, run_id: str, at: float, last_step: int | None, sample: Row | None, gpus: Sequence[Row] = ()) -> bool:
        """Store a heartbeat, a sample if there is one with its rows of GPUs, and the metric points so far.

        Returns False, and stores nothing, if the store does not know the run: it has been removed meanwhile.
        """
        from watcherml.store import journal

        with self._database.writing() as connection:
            if connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone() is None:
                return False
            connection.execute(
                "UPDATE runs SET heartbeat_at = ?, last_step = COALESCE(?, last_step) WHERE run_id = ?"
                " AND status = 'running'",
                (at, last_step, run_id),
            )
            if sample is not None:
                _insert(connection, "samples", {"run_id": run_id, **sample})
            for gpu in gpus:
                _insert(connection, "gpu_samples", {"run_id": run_id, "at": at, **gpu})
            journal.fold(connection, self.spool_folder, run_id)
        return True

    def note(self, run_id: str, facts: Mapping[str, Any], device: Mapping[str, Any] | None = None) -> None:
        """Merge facts (git, environment, dataset, machine ...) into the run's row."""
        from watcherml.store import aside

        held = self.kept.of(run_id)
        held.note(facts, device)
        try:
            with self._database.writing() as connection:
                aside.merge(connection, run_id, facts, device)
        except StoreError:
            held.facts_refused = True
            raise

    def supply(self, run_id: str, document: Mapping[str, Any]) -> None:
        """Put on record what the store refused before: ``run``, ``facts``, ``device``, ``blobs``, ``capsules``."""
        from watcherml.store import aside

        with self._database.writing() as connection:
            aside.apply(connection, run_id, document)
        self.kept.settled(run_id, document)

    @property
    def endings_wait(self) -> bool:
        """Whether a run has put its ending aside."""
        try:
            names = [one.name for one in self.spool_folder.iterdir()]
        except OSError:
            return False
        if not any(name.endswith(".ending") for name in names):
            return False  # the usual case costs a list of runs no further import
        from watcherml.store import aside

        return bool(aside.endings(self.spool_folder))

    def take_endings(self) -> list[str]:
        """Bring endings that were put aside into the store; returns the ids of their runs."""
        if not self.endings_wait:
            return []
        from watcherml.store import aside

        found = []
        for path in aside.endings(self.spool_folder):
            document = aside.read(path)
            if document is None:
                continue
            run_id, end = document["run_id"], document["end"]
            try:
                with self._database.writing() as connection:
                    aside.take(connection, path, document)
                self.end(run_id, **end, closed=aside.journals(path, run_id))
            except (*aside.UNFIT, StoreError):
                continue  # one that does not fit must not hide the others
            path.unlink(missing_ok=True)
            found.append(run_id)
        return found

    def drop_waiting(self, run_id: str) -> None:
        """Remove what waits beside a store that took nothing of a run, its journal included."""
        from watcherml.store import journal

        for path in journal.files(self.spool_folder, run_id):
            path.unlink(missing_ok=True)

    def end(
        self,
        run_id: str,
        status: str,
        reason: str,
        at: float,
        last_step: int | None,
        *,
        closed: frozenset[Path] = frozenset(),
    ) -> None:
        """Close a run and fold its last points.

        An ended run keeps its first ending, except that its own word replaces another's conclusion that it was killed.
        ``closed`` are journals of a living process that writes them no more.
        """
        from watcherml.store import aside, journal

        done = journal.finished(self.spool_folder, run_id) | closed
        odd: set[Path] = set()
        with self._database.writing() as connection:
            aside.close(connection, run_id, status, reason, at, last_step)
            journal.fold(connection, self.spool_folder, run_id, final=done, odd=odd)
        done -= odd
        # Only now are the points safe; a file that outlives a crash here has been folded and is not folded again.
        for path in done:
            path.unlink(missing_ok=True)
        with self._database.writing() as connection:
            names = [(run_id, path.name) for path in done]
            connection.executemany("DELETE FROM spools WHERE run_id = ? AND file = ?", names)

    def reconcile(self, is_alive: Callable[[ProcessId], bool], now: float) -> list[str]:
        """End the runs whose process is gone, keeping their last heartbeat as the end; returns their ids."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT run_id, pid, process_started, boot_id, heartbeat_at, last_step, facts FROM runs"
                " WHERE status = 'running'"
            ).fetchall()
        if not rows:
            return []
        from watcherml.store.endings import judge

        found = []
        for row in rows:
            try:
                judged = judge(sound("runs", row), is_alive, now)
            except DamagedRow:
                continue  # it is told where it is asked for, and must not hide the others
            if judged is not None:
                try:
                    self.end(row["run_id"], *judged, min(now, row["heartbeat_at"]), row["last_step"])
                    self._learn_last_step(row["run_id"])
                except (ValueError, StoreError):
                    continue  # a damaged journal of one run must not hide the others; it is tried again next time
                found.append(row["run_id"])
        return found

    def _learn_last_step(self, run_id: str) -> None:
        """Take the last step from the points: a killed process had no time to tell it."""
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE runs SET last_step = NULLIF(MAX(COALESCE(last_step, -1), COALESCE((SELECT MAX(m.step) FROM"
                " metric_ranges g CROSS JOIN metrics m ON m.rowid BETWEEN g.first_point AND g.last_point"
                " WHERE g.run_id = ?1), -1)), -1) WHERE run_id = ?1",
                (run_id,),
            )

    def running_in(self, process: ProcessId) -> str | None:
        """Return the newest open run of a process, None if it has none."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT run_id FROM runs WHERE status = 'running' AND pid = ? AND boot_id = ?"
                " AND ABS(process_started - ?) < 1 ORDER BY started_at DESC LIMIT 1",
                (process.pid, process.boot_id, process.started),
            ).fetchone()
        return None if row is None else str(row[0])

    def fold(self, run_id: str) -> None:
        """Bring a run's spooled points into the metrics table now."""
        from watcherml.store import journal

        with self._database.writing() as connection:
            journal.fold(connection, self.spool_folder, run_id)

    def get(self, run_id: str) -> Row:
        """Return one run with its JSON columns decoded; ``NotFound`` if there is none."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT * FROM runs WHERE run_id = ?", (run_id,)).fetchone()
            if row is None:
                raise absent.no_run(connection, run_id, self._database.folder)
        return sound("runs", row)

    def listing(
        self,
        *,
        project: str | None = None,
        status: str | None = None,
        role: str | None = "user",
        limit: int = 100,
        offset: int = 0,
    ) -> list[Row]:
        """Return ``run_summary`` rows, newest first; ``offset`` rows are passed over."""
        clauses, values = where(project=project, status=status, role=role)
        with self._database.reading() as connection:
            rows = asked(
                connection,
                f"SELECT *, {COUNTED} FROM run_summary {clauses} ORDER BY started_at DESC, run_id LIMIT ? OFFSET ?",
                (*values, limit, offset),
            )
        return [with_counted_peak(row) for row in all_sound("runs", rows)]

    def metrics(self, run_id: str, names: Sequence[str] | None = None, *, max_points: int | None = None) -> list[Row]:
        """Return metric points (name, step, value, at) in the order they were logged; NaN comes back as NaN.

        ``max_points`` thins each metric to so many of its points, see ``points.thinned``.
        """
        from watcherml.store import points

        with self._database.reading() as connection:
            if max_points is None:
                rows = points.page(connection, run_id, names)
            else:
                rows = points.thinned(connection, run_id, names, max_points)
        for row in rows:
            del row["point"]
        return rows if max_points is None else all_sound("metrics", rows)

    def samples(self, run_id: str, limit: int = 5_000, *, max_points: int | None = None) -> list[Row]:
        """Return the last ``limit`` resource samples, oldest first.

        With ``max_points`` so many of the whole run instead, each the fullest of its stretch, see
        ``points.thinned_samples``.
        """
        from watcherml.store import points

        with self._database.reading() as connection:
            if max_points is not None:
                return all_sound("samples", points.thinned_samples(connection, run_id, max_points))
            rows = connection.execute(
                "SELECT * FROM samples WHERE run_id = ? ORDER BY at DESC LIMIT ?", (run_id, limit)
            ).fetchall()
        return all_sound("samples", reversed(rows))

    def gpu_samples(self, run_id: str, limit: int = 5_000) -> list[Row]:
        """Return the last ``limit`` readings of GPUs, oldest first."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT * FROM gpu_samples WHERE run_id = ? ORDER BY at DESC, gpu_index DESC LIMIT ?", (run_id, limit)
            ).fetchall()
        return all_sound("gpu_samples", reversed(rows))

    def largest_samples(self, run_id: str) -> Row:
        """Return the largest ``device_bytes`` (reserved, else allocated) and ``own_bytes`` (NVML) of a run."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT (SELECT MAX(COALESCE(device_reserved_bytes, device_allocated_bytes)) FROM samples"
                " WHERE run_id = ?1) AS device_bytes,"
                " (SELECT MAX(own_bytes) FROM gpu_samples WHERE run_id = ?1) AS own_bytes",
                (run_id,),
            ).fetchone()
        return dict(row)

    def add_receipt(self, run_id: str, receipt: Row) -> None:
        """Store what was printed when the run ended well."""
        with self._database.writing() as connection:
            connection.execute("UPDATE runs SET receipt = ? WHERE run_id = ?", (json.dumps(receipt), run_id))

    def add_artifact(self, run_id: str, path: str, size_bytes: int, sha256: str | None, at: float) -> int:
        """Record a reference to a file, whose bytes stay where they are; returns the number of its row."""
        with self._database.writing() as connection:
            _insert(connection, "artifacts", {
                "run_id": run_id, "path": path, "size_bytes": size_bytes, "sha256": sha256, "at": at,
            })  # fmt: skip
            return int(connection.execute("SELECT last_insert_rowid()").fetchone()[0])

    def set_checksum(self, row: int, run_id: str, path: str, at: float, sha256: str) -> bool:
        """Add the checksum of a file that took its time; False if the row is not that file's, as in another store."""
        with self._database.writing() as connection:
            found = connection.execute(
                "UPDATE artifacts SET sha256 = ? WHERE artifact_id = ? AND run_id = ? AND path = ? AND at = ?",
                (sha256, row, run_id, path, at),
            )
            return found.rowcount > 0

    def artifacts(self, run_id: str) -> list[Row]:
        """Return a run's artifact references."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT run_id, path, size_bytes, sha256, at FROM artifacts WHERE run_id = ? ORDER BY at, artifact_id",
                (run_id,),
            ).fetchall()
        return all_sound("artifacts", rows)


def where(**conditions: Any) -> tuple[str, list[Any]]:
    """Build a WHERE clause from the conditions that are not None; names are the caller's constants."""
    used = {key: value for key, value in conditions.items() if value is not None}
    text = " AND ".join(f"{key} = ?" for key in used)
    return (f"WHERE {text}" if text else ""), list(used.values())


def _insert(connection: sqlite3.Connection, table: str, row: Row) -> None:
    from watcherml.store import aside

    aside.insert(connection, table, row)


def with_counted_peak(row: Row) -> Row:
    """Return a row of ``run_summary`` with the receipt's peak, where the samples between two peaks saw less.

    A simulated device without a limit is no device that a run can be repeated on, but what was measured is simulated.
    """
    counted, counted_by = row.pop("counted_peak"), row.pop("counted_by")
    if counted_by == "simulated device" and row["device_kind"] == "none":
        row["device_kind"] = "simulated"
    if isinstance(counted, int):
        row["peak_device_bytes"] = max(counted, row["peak_device_bytes"] or 0)
    return row
