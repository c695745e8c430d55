"""The ending of a run that the store refused: a small file beside the journal, until somebody opens the store.

A store that is locked for minutes must not hold up the end of a training, and a full disk must not lose it: room for
the file is reserved when the run starts.
"""

from __future__ import annotations

import json
import math
import os
import re
import sqlite3
from binascii import a2b_base64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict, get_args

from watcherml.platform import write_atomically
from watcherml.store import journal

ROOM, ENDING = ".room", ".ending"
ROOM_BYTES = 1 << 16
FORMAT = 1
# What is left out, one after the other, where the document is larger than its room.
_LARGEST_FIRST = ("blobs", "facts", "artifacts", "capsules", "run")

_LARGEST_BYTES = 64 << 20
_LARGEST_INTEGER = 2**63 - 1  # what an INTEGER column holds
_LATEST_SECONDS = 1e11
_ENDED = ("success", "failed", "interrupted", "killed")
# What an ending may hold of a table's columns, the run's id besides.
_COLUMNS = {
    "runs": {
        "project", "role", "campaign_id", "trial_id", "status", "started_at", "heartbeat_at", "pid", "process_started",
        "boot_id", "config", "lossy_paths", "redacted_paths", "device",
    },
    "artifacts": {"path", "size_bytes", "sha256", "at"},
    "capsules": {"digest", "failure_class", "subkind", "sentence", "created_at", "document"},
}  # fmt: skip
_JSON_COLUMNS = {"config": dict, "lossy_paths": list, "redacted_paths": list, "device": dict, "document": dict}
# What an ending that does not fit the store is met with. It stays where it is.
UNFIT = (sqlite3.Error, ValueError, TypeError, KeyError, ArithmeticError, RecursionError)

Document = dict[str, Any]


class End(TypedDict):
    """How a run has ended; ``at`` in seconds since 1970."""

    status: str
    reason: str
    at: float
    last_step: int | None


class Room:
    """A file of one run in one process whose bytes are reserved, so that a full disk still takes an ending."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self._folder, self._run_id = folder, run_id
        # Like the names of journals, so that whoever tidies up after a process finds it.
        self._name = f"{run_id}.{os.getpid()}-{os.urandom(3).hex()}"

    @property
    def path(self) -> Path:
        """The reserved file."""
        return self._folder / f"{self._name}{ROOM}"

    def reserve(self) -> None:
        """Reserve the bytes, unless they are; raises OSError where there are none to be had."""
        if self.path.exists():
            return
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(descriptor, 0, ROOM_BYTES)
            else:
                os.pwrite(descriptor, bytes(ROOM_BYTES), 0)
        except OSError:
            self.path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    def put(self, document: Document) -> Path:
        """Write an ending and rename it into its place; raises OSError where even the reserved room is gone."""
        target = self._folder / f"{self._name}{ENDING}"
        document = {"format": FORMAT, "run_id": self._run_id, **document}
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(target, json.dumps(document).encode("ascii"))
        except OSError:
            self._into_room(_fitting(document, ROOM_BYTES))
            self.path.replace(target)
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
        return target

    def _into_room(self, data: bytes) -> None:
        descriptor = os.open(self.path, os.O_RDWR)
        try:
            os.pwrite(descriptor, data, 0)
            os.ftruncate(descriptor, len(data))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _fitting(document: Document, size: int) -> bytes:
    data = json.dumps(document).encode("ascii")
    for name in _LARGEST_FIRST:
        if len(data) <= size:
            break
        document = {**document, name: None}
        data = json.dumps(document).encode("ascii")
    return data


def endings(folder: Path) -> list[Path]:
    """Return the endings that wait in a spool folder."""
    return journal.files(folder, None, ENDING)


def read(path: Path) -> Document | None:
    """Return an ending; None for a file that is damaged or from a later version, which stays where it is.

    Anybody who may write into the folder can put a file there: it is believed only as far as its name goes, and its
    run's id, which becomes part of names of files, is checked first.
    """
    try:
        with journal.open_regular(path) as stream:
            if os.fstat(stream.fileno()).st_size > _LARGEST_BYTES:
                return None
            found = json.loads(stream.read())
        return found if found["format"] == FORMAT and _is_named(path, found["run_id"]) and _is_whole(found) else None
    except (OSError, *UNFIT):
        return None


def _is_named(path: Path, run_id: object) -> bool:
    from watcherml.sealed.fields import RunId

    if not isinstance(run_id, str) or not get_args(RunId)[1].holds(run_id):
        return False
    return re.fullmatch(rf"{re.escape(run_id)}\.[0-9]+-[0-9a-f]+\{ENDING}", path.name) is not None


def _is_whole(found: Document) -> bool:
    end, rows = found["end"], {name: found.get(name) or [] for name in ("artifacts", "capsules", "blobs")}
    if not isinstance(end, dict) or end.keys() != End.__required_keys__ or not _is_number(end["at"]):
        return False
    step = end["last_step"]
    return (
        end["status"] in _ENDED
        and isinstance(end["reason"], str)
        and (step is None or (type(step) is int and _is_number(step, _LARGEST_INTEGER)))
        and all(isinstance(found.get(name) or {}, dict) for name in ("facts", "device"))
        and all(isinstance(one, list) for one in rows.values())
        and (not found.get("run") or _is_row("runs", found["run"], found["run_id"]))
        and all(_is_row(table, row, found["run_id"]) for table in ("artifacts", "capsules") for row in rows[table])
        and all(len(blob) == 3 and all(isinstance(text, str) for text in blob) for blob in rows["blobs"])
    )


def _is_number(value: object, most: float = _LATEST_SECONDS) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and abs(value) <= most  # type: ignore[arg-type]


def _is_row(table: str, row: Any, run_id: str) -> bool:
    if not isinstance(row, dict) or not row.keys() <= _COLUMNS[table] | {"run_id"}:
        return False
    if row.get("run_id", run_id) != run_id or (table == "runs" and row.keys() != _COLUMNS[table] | {"run_id"}):
        return False
    for name, kind in _JSON_COLUMNS.items():
        if row.get(name) is not None and not isinstance(json.loads(row[name]), kind):
            return False
    return all(value is None or isinstance(value, str) or _is_number(value, _LARGEST_INTEGER) for value in row.values())


def journals(path: Path, run_id: str) -> frozenset[Path]:
    """Return the journals of the process that put an ending aside: it writes them no more."""
    process = _pid_of(path)
    found = journal.files(path.parent, run_id)
    return frozenset(one for one in found if one.suffix != ENDING and _pid_of(one, run_id) == process)


def _pid_of(path: Path, run_id: str = "") -> str:
    return path.name.removeprefix(f"{run_id or journal.run_of(path)}.").partition("-")[0]


def take(connection: sqlite3.Connection, path: Path, document: Document) -> None:
    """Put what an ending holds on record, inside the caller's transaction; doing it twice changes nothing.

    A run that has ended otherwise stays as it is. Raises ValueError for an ending that is not the run's own: for a run
    of another store, and for a trial if it was not its process that wrote the file.
    """
    run_id, end, row = document["run_id"], document["end"], document.get("run")
    known = connection.execute(
        "SELECT status, end_reason, ended_at, origin, pid, campaign_id, trial_id FROM runs WHERE run_id = ?", (run_id,)
    ).fetchone()
    if known is None:
        if row and row["status"] != "running":
            raise ValueError("a run is put on record as running")
        pid, campaign_id, trial_id = (row["pid"], row["campaign_id"], row["trial_id"]) if row else (None, None, None)
    else:
        status, reason, ended_at, origin, pid, campaign_id, trial_id = tuple(known)
        if origin != "here":
            raise ValueError("an imported run does not end here")
        if status not in ("running", "killed") and (status, reason, ended_at) != (
            end["status"],
            end["reason"],
            end["at"],
        ):
            return
    if campaign_id is not None or trial_id is not None:
        own = connection.execute(
            "SELECT 1 FROM trials WHERE trial_id = ? AND campaign_id = ? AND run_id = ?",
            (trial_id, campaign_id, run_id),
        ).fetchone()
        if own is None or str(pid) != _pid_of(path):
            raise ValueError("this is not the trial's own ending")
    apply(connection, run_id, document)


def apply(connection: sqlite3.Connection, run_id: str, document: Mapping[str, Any]) -> None:
    """Put on record what a store had refused, inside the caller's transaction; doing it twice changes nothing."""
    row = document.get("run")
    if row:
        if row["run_id"] != run_id:
            raise ValueError("the row of another run")
        if connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone() is None:
            insert(connection, "runs", row)
    for digest, media_type, text in document.get("blobs") or ():
        connection.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?, ?)", (digest, media_type, a2b_base64(text)))
    merge(connection, run_id, document.get("facts") or {}, document.get("device"))
    _once(connection, "artifacts", ("path", "at"), run_id, document.get("artifacts") or ())
    _once(connection, "capsules", ("digest",), run_id, document.get("capsules") or ())


def close(
    connection: sqlite3.Connection, run_id: str, status: str, reason: str, at: float, last_step: int | None
) -> None:
    """End a run's row. It keeps its first ending, but its own word replaces the conclusion that it was killed."""
    connection.execute(
        "UPDATE runs SET status = ?, end_reason = ?, ended_at = ?, heartbeat_at = ?,"
        " last_step = COALESCE(?, last_step), receipt = NULL"
        " WHERE run_id = ? AND (status = 'running' OR (status = 'killed' AND ? <> 'killed'))",
        (status, reason, at, at, last_step, run_id, status),
    )


def merge(
    connection: sqlite3.Connection, run_id: str, facts: Mapping[str, Any], device: Mapping[str, Any] | None
) -> None:
    """Merge facts into a run's row, and replace its device if one is given."""
    row = connection.execute("SELECT facts FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if row is not None and facts:
        merged = {**json.loads(row[0]), **facts}
        connection.execute("UPDATE runs SET facts = ? WHERE run_id = ?", (json.dumps(merged), run_id))
    if device is not None:
        connection.execute("UPDATE runs SET device = ? WHERE run_id = ?", (json.dumps(dict(device)), run_id))


def insert(connection: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> None:
    """Insert a row, whose keys are names of columns that the caller vouches for."""
    columns = ", ".join(row)
    marks = ", ".join("?" for _ in row)
    connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", tuple(row.values()))


def _once(
    connection: sqlite3.Connection, table: str, keys: tuple[str, ...], run_id: str, rows: Sequence[Mapping[str, Any]]
) -> None:
    same = " AND ".join(f"{key} = ?" for key in keys)
    for row in rows:
        known = connection.execute(
            f"SELECT 1 FROM {table} WHERE run_id = ? AND {same}", (run_id, *(row[key] for key in keys))
        ).fetchone()
        if known is None:
            insert(connection, table, {**row, "run_id": run_id})
