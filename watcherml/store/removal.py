"""Taking data out of a store, whole or not at all, and giving the space back.

``measure`` says what would go, ``erase`` does it in one transaction. The tables of the audit trail refuse to lose rows;
their triggers are lifted inside that transaction, here and nowhere else, and a ``Deletion`` takes the place of what was
on record. Files go after the commit: what a crash leaves of them is found by ``orphans``.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

from watcherml.sealed.fields import CampaignId, Count, Digest, Items, Line, Name, RunId, Text, Timestamp
from watcherml.sealed.record import Record
from watcherml.store.aside import ENDING
from watcherml.store.database import Database
from watcherml.store.gate import inside
from watcherml.store.portable import digests_in
from watcherml.store.portable_rows import CAME_WITH
from watcherml.store.sound import damaged

_POINT_BYTES, _SAMPLE_BYTES = 28, 90  # a row with its header and its share of the indexes, as measured
_BUSY_SECONDS = 5.0
_JOURNAL_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True, eq=False)
class Gone(Record):
    """A document that was on record: its kind and digest stay, its content does not."""

    kind: Name
    digest: Digest


@dataclass(frozen=True, slots=True, eq=False)
class Deletion(Record):
    """Who deleted what from the audit trail, and when. It stays on record in the place of what went."""

    KIND: ClassVar[str] = "deletion"

    deleted_by: Annotated[str, Text(1, 400)]
    reason: Line
    at: Timestamp
    run_ids: tuple[RunId, ...]
    campaign_ids: tuple[CampaignId, ...]
    points: Count
    records: Annotated[tuple[Gone, ...], Items(0, 1_000_000)]


@dataclass(frozen=True)
class Removal:
    """What is to go: whole runs, whole campaigns, documents on record by digest, imported documents by digest."""

    runs: tuple[str, ...] = ()
    campaigns: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()


class Measure(NamedTuple):
    """How much a removal takes: rows, and bytes in the database (about) and in files."""

    runs: int
    campaigns: int
    trials: int
    points: int
    records: int
    database_bytes: int
    file_bytes: int


# Rows that belong to a run, and the columns whose length is most of their size.
_OF_RUN = {
    "samples": (), "gpu_samples": (), "artifacts": ("path",), "spools": (),
    "capsules": ("document",), "cells": ("source", "error_message"), "imports": ("document",),
}  # fmt: skip
_OF_CAMPAIGN = {"verdicts": ("sentence",), "trials": (), "events": ("body",), "campaigns": ()}


def measure(connection: sqlite3.Connection, removal: Removal) -> Measure:
    """Return what a removal would take."""
    points = trials = size = 0
    for run_id in removal.runs:
        points += _one(
            connection, "SELECT SUM(last_point - first_point + 1) FROM metric_ranges WHERE run_id = ?", run_id
        )
        size += _one(connection, "SELECT SUM(LENGTH(config) + LENGTH(facts)) FROM runs WHERE run_id = ?", run_id)
        for table, texts in _OF_RUN.items():
            size += _size(connection, table, texts, "run_id", run_id)
    for campaign_id in removal.campaigns:
        trials += _one(connection, "SELECT COUNT(*) FROM trials WHERE campaign_id = ?", campaign_id)
        for table, texts in _OF_CAMPAIGN.items():
            size += _size(connection, table, texts, "campaign_id", campaign_id)
    for digest in removal.records:
        size += _size(connection, "records", ("document",), "digest", digest)
    for digest in removal.imports:
        size += _size(connection, "imports", ("document",), "digest", digest)
    size += sum(_own_blobs(connection, removal.runs).values())
    files = sum(folder_bytes(folder) for folder in removal.folders)
    return Measure(len(removal.runs), len(removal.campaigns), trials, points, len(removal.records),
                   size + points * _POINT_BYTES, files)  # fmt: skip


def erase(connection: sqlite3.Connection, removal: Removal, deletion: Deletion | None) -> None:
    """Delete the rows of a removal inside the caller's transaction and put ``deletion`` on record instead."""
    # Else what was deleted can be read from the free pages until they are used again.
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA defer_foreign_keys = ON")
    with _without_triggers(connection):
        for campaign_id in removal.campaigns:
            connection.execute(
                "DELETE FROM trial_ends WHERE trial_id IN (SELECT trial_id FROM trials WHERE campaign_id = ?)",
                (campaign_id,),
            )
            for table in _OF_CAMPAIGN:
                connection.execute(f"DELETE FROM {table} WHERE campaign_id = ?", (campaign_id,))
        connection.executemany("DELETE FROM records WHERE digest = ?", ((one,) for one in removal.records))
        connection.executemany("DELETE FROM imports WHERE digest = ?", ((one,) for one in removal.imports))
        blobs = _own_blobs(connection, removal.runs)
        for run_id in removal.runs:
            _erase_run(connection, run_id)
        connection.executemany("DELETE FROM blobs WHERE digest = ?", ((one,) for one in blobs))
    if deletion is not None:
        connection.execute(
            "INSERT OR IGNORE INTO records (digest, kind, campaign_id, document, at) VALUES (?, ?, NULL, ?, ?)",
            (deletion.digest, deletion.KIND, deletion.to_json(), deletion.at),
        )


def _erase_run(connection: sqlite3.Connection, run_id: str) -> None:
    ranges = connection.execute("SELECT first_point, last_point FROM metric_ranges WHERE run_id = ?", (run_id,))
    for first, last in ranges.fetchall():
        connection.execute("DELETE FROM metrics WHERE rowid BETWEEN ? AND ?", (first, last))
    connection.execute("DELETE FROM metric_ranges WHERE run_id = ?", (run_id,))
    connection.execute(
        "DELETE FROM metric_names WHERE source_id IN (SELECT source_id FROM metric_sources WHERE run_id = ?)", (run_id,)
    )
    _leave_to_others(connection, run_id)
    for table in ("metric_sources", *_OF_RUN, "runs"):
        connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))


def _leave_to_others(connection: sqlite3.Connection, run_id: str) -> None:
    """Give the results that came with another import too to that one."""
    digests = connection.execute("SELECT digest FROM imports WHERE run_id = ?", (run_id,)).fetchall()
    for (digest,) in digests:
        other = connection.execute(
            f"{CAME_WITH} AND r.run_id <> ? AND d.value = ? ORDER BY r.run_id LIMIT 1", (run_id, digest)
        ).fetchone()
        if other is not None:
            connection.execute("UPDATE imports SET run_id = ? WHERE digest = ?", (other[0], digest))


@contextmanager
def _without_triggers(connection: sqlite3.Connection) -> Iterator[None]:
    """Lift the triggers that keep rows of the audit trail; both changes are part of the transaction."""
    found = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND sql LIKE '%BEFORE DELETE%'"
    ).fetchall()
    for name, _ in found:
        connection.execute(f'DROP TRIGGER "{name}"')
    yield
    # An error has not come here: it rolls the transaction back, triggers included.
    for _, text in found:
        connection.execute(text)


# -- files ------------------------------------------------------------------------------------------------------------


def remove_folders(folders: Iterable[Path]) -> list[str]:
    """Remove folders and files; returns those that the system kept, with its reason."""
    kept = []
    for folder in folders:
        try:
            if folder.is_dir() and not folder.is_symlink():
                shutil.rmtree(folder)
            else:
                folder.unlink(missing_ok=True)
        except OSError as error:
            kept.append(f"{folder}: {error.strerror}")
    return kept


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files in a folder, or of one file; what cannot be read counts as nothing."""
    total = 0
    if not folder.is_dir() or folder.is_symlink():
        with suppress(OSError):
            total = folder.lstat().st_size
        return total
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += (Path(parent) / name).lstat().st_size
    return total


def orphans(connection: sqlite3.Connection, store: Path, is_gone: Callable[[int], bool]) -> list[Path]:
    """Return folders and journals that no row speaks of: what a crash in the middle of a removal leaves.

    Rows are always written before their files, so a file without a row has lost it. A journal may be all that a run
    could write, on a full disk for instance: it counts after a day, and if ``is_gone`` says so of its process.
    """
    found: list[Path] = []
    for top, query in (
        ("trials", "SELECT trial_id FROM trials"),
        ("artifacts", "SELECT campaign_id FROM campaigns UNION SELECT run_id FROM runs"),
    ):
        known = _column(connection, query)
        found += [path for path in _entries(store / top) if path.name not in known]
    runs = _column(connection, "SELECT run_id FROM runs")
    for path in _entries(store / "spool"):
        if path.suffix == ENDING:
            continue  # one that nobody has taken may be from a later version, and all that is known of its run
        run_id, pid = _journal_of(path)
        with suppress(OSError):
            old = time.time() - path.stat().st_mtime > _JOURNAL_SECONDS
            if pid is not None and run_id not in runs and old and is_gone(pid):
                found.append(path)
    return found


def _journal_of(path: Path) -> tuple[str, int | None]:
    # run.pid-tag.serial.points, run.pid-tag.names, run.pid-tag.jsonl; a run's id may hold dots.
    parts = path.name.rsplit(".", 3 if path.suffix == ".points" else 2)
    pid = parts[1].partition("-")[0] if len(parts) > 2 else ""
    return parts[0], int(pid) if pid.isdecimal() else None


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


# -- space ------------------------------------------------------------------------------------------------------------


def database_bytes(database: Database) -> int:
    """Return the size of the database with its log, in bytes."""
    return sum(folder_bytes(database.path.with_name(database.path.name + end)) for end in ("", "-wal"))


def free_bytes(database: Database) -> int:
    """Return the bytes of the database's pages that hold nothing."""
    with database.reading() as connection:
        pages = connection.execute("PRAGMA freelist_count").fetchone()[0]
        return int(pages * connection.execute("PRAGMA page_size").fetchone()[0])


def give_back(database: Database) -> str:
    """Shrink the database to what is in it; returns why not, in words, or an empty text."""
    try:
        with inside(), closing(_writable(database)) as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            return "others are using the store now; `watcher prune` gives the space back later"
        return f"the system refused ({error}); the space is used again"
    return ""


def _writable(database: Database) -> sqlite3.Connection:
    # Not through Database.writing: VACUUM refuses to run inside a transaction.
    uri = f"{database.path.as_uri()}?mode=rw"
    return sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)


# -- queries ----------------------------------------------------------------------------------------------------------


def _one(connection: sqlite3.Connection, text: str, value: Any) -> int:
    return int(connection.execute(text, (value,)).fetchone()[0] or 0)


def _size(connection: sqlite3.Connection, table: str, texts: tuple[str, ...], key: str, value: str) -> int:
    lengths = "".join(f" + LENGTH(COALESCE({name}, ''))" for name in texts)
    return _one(connection, f"SELECT SUM({_SAMPLE_BYTES}{lengths}) FROM {table} WHERE {key} = ?", value)


def _own_blobs(connection: sqlite3.Connection, run_ids: tuple[str, ...]) -> dict[str, int]:
    """Return the stored bytes (digest and size) that these runs refer to and no other run does."""
    own: set[str] = set()
    for run_id in run_ids:
        for row in connection.execute("SELECT facts FROM runs WHERE run_id = ?", (run_id,)):
            own.update(digests_in(_facts(run_id, row[0])))
    stored = {str(row[0]): int(row[1]) for row in connection.execute("SELECT digest, LENGTH(data) FROM blobs")}
    own &= stored.keys()
    if own:
        going = set(run_ids)
        for run_id, facts in connection.execute("SELECT run_id, facts FROM runs"):
            if run_id not in going:
                own.difference_update(digests_in(_facts(run_id, facts)))
    return {digest: stored[digest] for digest in own}


def _facts(run_id: object, facts: object) -> str:
    if not isinstance(facts, str):
        raise damaged("runs", str(run_id), "facts", "a JSON object", type(facts).__name__)
    return facts


def _column(connection: sqlite3.Connection, text: str, *values: Any) -> set[str]:
    """Return ids; ``DamagedRow`` for one that is none: what belongs to that row would be taken for nobody's."""
    found = {row[0] for row in connection.execute(text, values)}
    wrong = [one for one in found if not isinstance(one, str)]
    if wrong:
        table = text.partition(" FROM ")[2].split()[0]
        raise damaged(table, repr(wrong[0])[:80], "id", "text", type(wrong[0]).__name__)
    return found
