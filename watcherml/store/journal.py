"""The metric spool: an append-only file a process, folded into SQLite when there is time.

A point is one line written by one ``os.write`` to a file opened with O_APPEND: once the call returns, the
kernel has the bytes, and SIGKILL of the process cannot take them back.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path

_BATCH = 2_000
_MAX_STEP = 2**63 - 1  # what an INTEGER column holds


class Spool:
    """The writing end, owned by one process; a forked child writes to a file of its own."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self._folder = folder
        self._run_id = run_id
        self._pid = 0
        self._descriptor = -1

    def append(self, name: str, value: float, step: int | None, at: float) -> None:
        """Add one point; raises OSError if the disk refuses it."""
        self._write((name, value, step, at))

    def extend(self, points: Iterable[tuple[str, float, int | None, float]]) -> None:
        """Add several points."""
        for point in points:
            self._write(point)

    def _write(self, point: tuple[str, float, int | None, float]) -> None:
        if self._pid != os.getpid():
            self._open()
        # json spells NaN and infinity as words that json reads back.
        os.write(self._descriptor, (json.dumps(point) + "\n").encode("ascii"))

    def _open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._folder / f"{self._run_id}.{os.getpid()}.jsonl"
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._pid = os.getpid()

    def close(self) -> None:
        """Close the file; a later append opens it again."""
        if self._pid == os.getpid() and self._descriptor >= 0:
            os.close(self._descriptor)
        self._pid, self._descriptor = 0, -1


def fold(connection: sqlite3.Connection, folder: Path, run_id: str) -> int:
    """Move a run's new points into the metrics table, inside the caller's transaction; returns how many.

    The position is stored in the same transaction, so a crash between the two cannot double or lose a point.
    A torn last line (a machine that lost power) is left for the next call.
    """
    moved = 0
    for path in sorted(folder.glob(f"{run_id}.*.jsonl")):
        row = connection.execute(
            "SELECT folded_bytes FROM spools WHERE run_id = ? AND file = ?", (run_id, path.name)
        ).fetchone()
        start = int(row[0]) if row else 0
        with path.open("rb") as stream:
            stream.seek(start)
            data = stream.read()
        end = data.rfind(b"\n") + 1
        if end == 0:
            continue
        rows = [_row(run_id, line) for line in data[:end].splitlines()]
        for index in range(0, len(rows), _BATCH):
            connection.executemany(
                "INSERT INTO metrics (run_id, name, step, value, special, at) VALUES (?, ?, ?, ?, ?, ?)",
                [row for row in rows[index : index + _BATCH] if row is not None],
            )
        connection.execute(
            "INSERT INTO spools (run_id, file, folded_bytes) VALUES (?, ?, ?)"
            " ON CONFLICT (run_id, file) DO UPDATE SET folded_bytes = excluded.folded_bytes",
            (run_id, path.name, start + end),
        )
        moved += len(rows)
    return moved


def discard(connection: sqlite3.Connection, folder: Path, run_id: str) -> None:
    """Remove the spool of a run that has ended and been folded in this transaction."""
    for path in folder.glob(f"{run_id}.*.jsonl"):
        path.unlink(missing_ok=True)
    connection.execute("DELETE FROM spools WHERE run_id = ?", (run_id,))


def _row(run_id: str, line: bytes) -> tuple[str, str, int | None, float | None, str | None, float] | None:
    try:
        name, value, step, at = json.loads(line)
        name.encode("utf-8")
        if step is not None and abs(step) > _MAX_STEP:
            return None
    except (ValueError, TypeError, AttributeError):
        return None  # torn by a full disk, or not ours; its neighbours are whole and must not be lost with it
    special = None if math.isfinite(value) else {math.inf: "inf", -math.inf: "-inf"}.get(value, "nan")
    return run_id, name, step, None if special else value, special, at
