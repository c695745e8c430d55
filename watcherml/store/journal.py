"""The reading end of the journal: points are folded into SQLite when there is time, each once.

How far a file has been folded is stored in the transaction that takes its points, so a crash between the two cannot
double or lose one.
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from watcherml.errors import DamagedRow
from watcherml.platform import pid_runs
from watcherml.store.sound import each
from watcherml.store.spool import HAS_STEP, HEADER, MARK_AT, RECORD, AppendSpool, MappedSpool, Spool

_CHUNK_BYTES = 1 << 18
_MAX_STEP = 2**63 - 1  # what an INTEGER column holds
# SQLite stores a NaN as NULL, which no other point is.
# Parts of a file's name after the run's id, which may hold dots itself.
_PARTS = {".points": 3, ".names": 2, ".jsonl": 2, ".room": 2, ".ending": 2}
_LARGEST_PID = 2**31 - 1
# By its number, so that points of one metric stay together.
NAMELESS = "name-lost-%d"
# What a file that is none of ours, or damaged, is met with. Not OperationalError: that is the database's trouble.
_ODD = (OSError, ValueError, TypeError, ArithmeticError, RecursionError, sqlite3.IntegrityError,
        sqlite3.InterfaceError, sqlite3.ProgrammingError)  # fmt: skip
_INSERT = f"INSERT INTO metrics (at, value, step, key) VALUES (?1, ?2, CASE WHEN ?5 & {HAS_STEP} THEN ?3 END, ?4)"


def open_spool(folder: Path, run_id: str, plain: bool) -> Spool:
    """Return the writing end for a run; ``plain`` where files cannot be mapped safely."""
    return AppendSpool(folder, run_id) if plain else MappedSpool(folder, run_id)


def files(folder: Path, run_id: str | None = None, *suffixes: str) -> list[Path]:
    """Return the journals, rooms and endings in a folder, by default all: regular files, links and pipes are none."""
    try:
        with os.scandir(folder) as found:
            regular = [Path(one.path) for one in found if one.is_file(follow_symlinks=False)]
    except OSError:
        return []
    wanted = suffixes or tuple(_PARTS)
    return sorted(one for one in regular if one.suffix in wanted and (run_id is None or run_of(one) == run_id))


def run_of(path: Path) -> str | None:
    """Return the id of the run that a file in the folder of journals is named after."""
    parts = path.name.rsplit(".", _PARTS.get(path.suffix, 0))
    return parts[0] if len(parts) > 2 and all(parts) else None


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; raises OSError also for what is no regular file, and never waits for a pipe."""
    flags = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_BINARY", "O_CLOEXEC"))
    stream = os.fdopen(os.open(path, os.O_RDONLY | flags), "rb")
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(f"{path.name} is no regular file")
    return stream


def finished(folder: Path, run_id: str) -> frozenset[Path]:
    """Return the files of a run that nobody writes any more: this process's own, and those of processes that are gone.

    A child may go on logging after its parent has ended the run, and a run may be called dead by mistake; what a living
    process writes is never taken away.
    """
    found = files(folder, run_id, ".points", ".names", ".jsonl", ".room")
    pids = {path: path.name.removeprefix(f"{run_id}.").partition(".")[0].partition("-")[0] for path in found}
    running = {pid: pid.isdecimal() and _runs(int(pid)) for pid in set(pids.values())}
    return frozenset(path for path in found if not running[pids[path]])


def _runs(pid: int) -> bool:
    return 0 < pid <= _LARGEST_PID and pid != os.getpid() and pid_runs(pid)


def discard(folder: Path, run_id: str) -> None:
    """Remove the files of a run that nobody will ever read, this process's own."""
    for path in finished(folder, run_id):
        path.unlink(missing_ok=True)


def fold(
    connection: sqlite3.Connection,
    folder: Path,
    run_id: str,
    *,
    final: frozenset[Path] = frozenset(),
    odd: set[Path] | None = None,
) -> int:
    """Move a run's new points into the metrics table, inside the caller's transaction; returns how many.

    A record that is being written stops its file until the next call. In the files of ``final`` nobody writes any more:
    there, what was never finished is passed over. A file that cannot be understood stays as it is and hides no other:
    it is added to ``odd``.
    """
    moved = 0
    for path in files(folder, run_id, ".points", ".jsonl"):
        connection.execute("SAVEPOINT journal")
        try:
            if path.suffix == ".points":
                moved += _fold_points(connection, path, run_id, path in final)
            else:
                moved += _fold_lines(connection, path, run_id)
        except _ODD:
            connection.execute("ROLLBACK TO journal")
            if odd is not None:
                odd.update((path, _names_of(path)))
        connection.execute("RELEASE journal")
    return moved


def tell_unreadable(folder: Path, run_id: str | None = None) -> None:
    """Tell each journal of a run, or of all, whose points cannot be read, as a row is told that a list leaves out."""
    each(files(folder, run_id, ".points", ".jsonl"), _readable)


def _readable(path: Path) -> Path:
    """Return the path of a journal; ``DamagedRow`` if its points cannot be read, so that it stays where it is.

    One that has no byte yet, or that is gone meanwhile, has no points to miss.
    """
    wrong = path
    try:
        with open_regular(path) as stream:
            header = stream.read(RECORD.size)
        if path.suffix == ".points" and header.strip(b"\0"):
            if header != HEADER:
                raise ValueError("another beginning")
            wrong = _names_of(path)
            _read_names(wrong)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedRow(
            f"journal {path.name}: its points cannot be read",
            expected="a file that begins as a journal does" if wrong is path else f"a name a line in {wrong.name}",
            got=str(error)[:120],
            remedy=f"Both stay as they are in {path.parent}: restore the damaged file from a copy, or delete the run.",
        ) from None
    return path


def _names_of(path: Path) -> Path:
    return path.with_name(f"{path.name.rsplit('.', 2)[0]}.names")


def _fold_points(connection: sqlite3.Connection, path: Path, run_id: str, final: bool) -> int:
    start = max(_folded(connection, run_id, path.name), RECORD.size)
    position, moved = start, 0
    with open_regular(path) as stream:
        header = stream.read(RECORD.size)
        if not header.strip(b"\0"):
            return 0  # killed between making the file and its first byte
        if header != HEADER:
            raise ValueError(f"{path.name} does not begin like a journal")
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
    _learn_names(connection, source, _names_of(path))
    moved = _add(connection, rows, run_id, source)
    if moved:
        _name_the_nameless(connection, source, moved)
    return moved


def _name_the_nameless(connection: sqlite3.Connection, source: int, moved: int) -> None:
    """Give the last ``moved`` points a name to be found by where theirs is lost: a machine that lost its power may
    have kept points and not the file of their names, and nothing shows a point without a name."""
    connection.execute(
        "INSERT INTO metric_names (source_id, key, name) SELECT DISTINCT ?1, m.key, printf(?2, m.key) FROM metrics m"
        " WHERE m.rowid > (SELECT MAX(rowid) FROM metrics) - ?3"
        " AND NOT EXISTS (SELECT 1 FROM metric_names n WHERE n.source_id = ?1 AND n.key = m.key)",
        (source, NAMELESS, moved),
    )


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
    known = {row[0] for row in connection.execute("SELECT key FROM metric_names WHERE source_id = ?", (source,))}
    new = [(source, key, name) for key, name in _read_names(path, known)]
    connection.executemany("INSERT INTO metric_names (source_id, key, name) VALUES (?, ?, ?)", new)


def _read_names(path: Path, known: Collection[int] = ()) -> list[tuple[int, str]]:
    """Return the names with their keys, without those that are known: a run may have thousands, and folds often."""
    try:
        # What follows the last line end is the start of a name whose writer was killed; no point has it.
        with open_regular(path) as stream:
            lines = stream.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return []  # the process was killed before its first name, so before its first point
    names = [(key, json.loads(line)) for key, line in enumerate(lines) if key not in known]
    if not all(isinstance(name, str) for _, name in names):
        raise ValueError(f"{path.name} holds what is no name")
    return names


def _fold_lines(connection: sqlite3.Connection, path: Path, run_id: str) -> int:
    start = _folded(connection, run_id, path.name)
    with open_regular(path) as stream:
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
            if (step is not None and (not isinstance(step, int) or abs(step) > _MAX_STEP)) or at != at:
                continue
            yield float(at), float(value), step or 0, names.setdefault(name, len(names)), 1 if step is None else 3
        except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError):
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
