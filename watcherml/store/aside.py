"""The ending of a run that the store refused: a small file beside the journal, until somebody opens the store.

A store that is locked for minutes must not hold up the end of a training, and a full disk must not lose it: room for
the file is reserved when the run starts.
"""

from __future__ import annotations

import json
import os
import sqlite3
from binascii import a2b_base64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

from watcherml.platform import write_atomically

ROOM, ENDING = ".room", ".ending"
ROOM_BYTES = 1 << 16
FORMAT = 1
# What is left out, one after the other, where the document is larger than its room.
_LARGEST_FIRST = ("blobs", "facts", "artifacts", "capsules", "run")

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
    try:
        with os.scandir(folder) as found:
            return sorted(Path(one.path) for one in found if one.name.endswith(ENDING))
    except OSError:
        return []


def read(path: Path) -> Document | None:
    """Return an ending; None for a file that is damaged or from a later version, which stays where it is."""
    try:
        found = json.loads(path.read_bytes())
        whole = found["format"] == FORMAT and isinstance(found["run_id"], str) and isinstance(found["end"], dict)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if whole else None


def journals(path: Path, run_id: str) -> frozenset[Path]:
    """Return the journals of the process that put an ending aside: it writes them no more."""
    process = path.name.removeprefix(f"{run_id}.").partition("-")[0]
    return frozenset(one for one in path.parent.glob(f"{run_id}.{process}-*") if one.suffix != ENDING)


def apply(connection: sqlite3.Connection, run_id: str, document: Mapping[str, Any]) -> None:
    """Put on record what a store had refused, inside the caller's transaction; doing it twice changes nothing."""
    if document.get("run"):
        insert(connection, "runs", document["run"], "OR IGNORE")
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


def insert(connection: sqlite3.Connection, table: str, row: Mapping[str, Any], conflict: str = "") -> None:
    """Insert a row; ``conflict`` is what SQLite writes between INSERT and INTO."""
    columns = ", ".join(row)
    marks = ", ".join("?" for _ in row)
    connection.execute(f"INSERT {conflict} INTO {table} ({columns}) VALUES ({marks})", tuple(row.values()))


def _once(
    connection: sqlite3.Connection, table: str, keys: tuple[str, ...], run_id: str, rows: Sequence[Mapping[str, Any]]
) -> None:
    same = " AND ".join(f"{key} = ?" for key in keys)
    for row in rows:
        known = connection.execute(
            f"SELECT 1 FROM {table} WHERE run_id = ? AND {same}", (run_id, *(row[key] for key in keys))
        ).fetchone()
        if known is None:
            insert(connection, table, {"run_id": run_id, **row})
