"""The reading end of the journal: points are folded into SQLite when there is time, each once.

How far a file has been folded is stored in the transaction that takes its points, so a crash between the two cannot
double or lose one.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from watcherml.platform import pid_runs
from watcherml.store.spool import HAS_STEP, HEADER, MARK_AT, RECORD, AppendSpool, MappedSpool, Spool

_CHUNK_BYTES = 1 << 18
_MAX_STEP = 2**63 - 1  # what an INTEGER column holds
# SQLite stores a NaN as NULL, which no other point is.
_INSERT = f"INSERT INTO metrics (at, value, step, key) VALUES (?1, ?2, CASE WHEN ?5 & {HAS_STEP} THEN ?3 END, ?4)"


def open_spool(folder: Path, run_id: str, plain: bool) -> Spool:
    """Return the writing end for a run; ``plain`` where files cannot be mapped safely."""
    return AppendSpool(folder, run_id) if plain else MappedSpool(folder, run_id)


def finished(folder: Path, run_id: str) -> frozenset[Path]:
    """Return the files of a run that nobody writes any more: this process's own, and those of processes that are gone.

    A child may go on logging after its parent has ended the run, and a run may be called dead by mistake; what a living
    process writes is never taken away.
    """
    found = [path for suffix in ("points", "names", "jsonl", "room") for path in folder.glob(f"{run_id}.*.{suffix}")]
    pids = {path: path.name.removeprefix(f"{run_id}.").partition(".")[0].partition("-")[0] for path in found}
    running = {pid: pid.isdecimal() and int(pid) != os.getpid() and pid_runs(int(pid)) for pid in set(pids.values())}
    return frozenset(path for path in found if not running[pids[path]])


def discard(folder: Path, run_id: str) -> None:
    """Remove the files of a run that nobody will ever read, this process's own."""
    for path in finished(folder, run_id):
        path.unlink(missing_ok=True)


def fold(connection: sqlite3.Connection, folder: Path, run_id: str, *, final: frozenset[Path] = frozenset()) -> int:
    """Move a run's new points into the metrics table, inside the caller's transaction; returns how many.

    A record that is being written stops its file until the next call. In the files of ``final`` nobody writes any more:
    there, what was never finished is passed over.
    """
    moved = 0
    for path in sorted(folder.glob(f"{run_id}.*.points")):
        moved += _fold_points(connection, path, run_id, path in final)
    for path in sorted(folder.glob(f"{run_id}.*.jsonl")):
        moved += _fold_lines(connection, path, run_id)
    return moved


def _fold_points(connection: sqlite3.Connection, path: Path, run_id: str, final: bool) -> int:
    start = max(_folded(connection, run_id, path.name), RECORD.size)
    position, moved = start, 0
    with path.open("rb") as stream:
        if stream.read(RECORD.size) != HEADER:
            return 0  # killed between making the file and its first byte, or not ours
        stream.seek(start)
        while data := stream.read(_CHUNK_BYTES):
            data = data[: len(data) - len(data) % RECORD.size]
            marks = data[MARK_AT :: RECORD.size]
            hole = marks.find(0)
            whole = data if final or hole < 0 else data[: hole * RECORD.size]
            rows: Iterable[Any] = RECORD.iter_unpack(whole)
            if final and hole >= 0:
                rows = [row for row in rows if row[4]]
            elif not whole:
                break
            moved += _insert(connection, rows, run_id, path)
            position += len(whole)
            if len(whole) < len(data):
                break
    if position > start:
        _set_folded(connection, run_id, path.name, position)
    return moved


def _insert(connection: sqlite3.Connection, rows: Iterable[Any], run_id: str, path: Path) -> int:
    source = _source(connection, run_id, path.name.removeprefix(f"{run_id}.").partition(".")[0])
    _learn_names(connection, source, path.with_name(f"{path.name.rsplit('.', 2)[0]}.names"))
    return _add(connection, rows, run_id, source)


def _add(connection: sqlite3.Connection, rows: Iterable[Any], run_id: str, source: int) -> int:
    """Insert points and note where they lie: those of one call are neighbours, since nobody else writes meanwhile."""
    before = connection.execute("SELECT COALESCE(MAX(rowid), 0) FROM metrics").fetchone()[0]
    connection.executemany(_INSERT, rows)
    after = connection.execute("SELECT COALESCE(MAX(rowid), 0) FROM metrics").fetchone()[0]
    if after == before:
        return 0
    grown = connection.execute(
        "UPDATE metric_ranges SET last_point = ? WHERE source_id = ? AND last_point = ?", (after, source, before)
    )
    if not grown.rowcount:
        connection.execute("INSERT INTO metric_ranges VALUES (?, ?, ?, ?)", (run_id, source, before + 1, after))
    return int(after - before)


def _source(connection: sqlite3.Connection, run_id: str, process: str) -> int:
    connection.execute("INSERT OR IGNORE INTO metric_sources (run_id, process) VALUES (?, ?)", (run_id, process))
    row = connection.execute(
        "SELECT source_id FROM metric_sources WHERE run_id = ? AND process = ?", (run_id, process)
    ).fetchone()
    return int(row[0])


def _learn_names(connection: sqlite3.Connection, source: int, path: Path) -> None:
    known = connection.execute("SELECT COUNT(*) FROM metric_names WHERE source_id = ?", (source,)).fetchone()[0]
    try:
        # What follows the last line end is the start of a name whose writer was killed; no point has it.
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError:
        lines = []  # the process was killed before its first name, so before its first point
    new = [(source, key, json.loads(line)) for key, line in enumerate(lines) if key >= known]
    connection.executemany("INSERT INTO metric_names (source_id, key, name) VALUES (?, ?, ?)", new)


def _fold_lines(connection: sqlite3.Connection, path: Path, run_id: str) -> int:
    start = _folded(connection, run_id, path.name)
    with path.open("rb") as stream:
        stream.seek(start)
        data = stream.read()
    end = data.rfind(b"\n") + 1
    if end == 0:
        return 0
    source = _source(connection, run_id, f"{path.name.removeprefix(f'{run_id}.').partition('.')[0]}-lines")
    names = {
        str(name): int(key)
        for key, name in connection.execute("SELECT key, name FROM metric_names WHERE source_id = ?", (source,))
    }
    before = len(names)
    rows = list(_parsed(data[:end].splitlines(), names))
    new = [(source, key, name) for name, key in list(names.items())[before:]]
    connection.executemany("INSERT INTO metric_names (source_id, key, name) VALUES (?, ?, ?)", new)
    moved = _add(connection, rows, run_id, source)
    _set_folded(connection, run_id, path.name, start + end)
    return moved


def _parsed(lines: list[bytes], names: dict[str, int]) -> Iterator[tuple[float, float, int, int, int]]:
    for line in lines:
        try:
            name, value, step, at = json.loads(line)
            name.encode("utf-8")
            if step is not None and abs(step) > _MAX_STEP:
                continue
            yield float(at), float(value), step or 0, names.setdefault(name, len(names)), 1 if step is None else 3
        except (ValueError, TypeError, AttributeError):
            continue  # torn by a full disk, or not ours; its neighbours are whole and must not be lost with it


def _folded(connection: sqlite3.Connection, run_id: str, file: str) -> int:
    row = connection.execute("SELECT folded_bytes FROM spools WHERE run_id = ? AND file = ?", (run_id, file)).fetchone()
    return int(row[0]) if row else 0


def _set_folded(connection: sqlite3.Connection, run_id: str, file: str, position: int) -> None:
    connection.execute(
        "INSERT INTO spools (run_id, file, folded_bytes) VALUES (?, ?, ?)"
        " ON CONFLICT (run_id, file) DO UPDATE SET folded_bytes = excluded.folded_bytes",
        (run_id, file, position),
    )
