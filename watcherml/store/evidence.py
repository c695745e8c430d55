"""Rows of capsules, blobs and notebook cells."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from watcherml.errors import NotFound, StoreError
from watcherml.store import aside
from watcherml.store.database import Database
from watcherml.store.patience import Patience
from watcherml.store.runs import Row, where
from watcherml.store.sound import all_sound, asked, sound

_CELL_SECONDS = 2.0


class Evidence:
    """Reads and writes of what was captured."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_capsule(
        self, run_id: str, *, digest: str, failure_class: str, subkind: str, sentence: str, document: str, at: float
    ) -> None:
        """Store a capsule's document; a run may have several, the last one counts."""
        capsule = {
            "digest": digest, "failure_class": failure_class, "subkind": subkind, "sentence": sentence,
            "created_at": at, "document": document,
        }  # fmt: skip
        try:
            with self._database.writing() as connection:
                aside.insert(connection, "capsules", {"run_id": run_id, **capsule})
        except StoreError:
            self._database.kept.of(run_id).capsules.append(capsule)
            raise

    def capsule(self, run_id: str) -> Row:
        """Return the row of a run's last capsule; ``NotFound`` if it has none."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT * FROM capsules WHERE run_id = ? ORDER BY capsule_id DESC LIMIT 1", (run_id,)
            ).fetchone()
        if row is None:
            raise NotFound(f"run {run_id[:100]!r} has no capsule", remedy="Only a failed run has one.")
        return sound("capsules", row)

    def failures(
        self, *, project: str | None = None, unresolved: bool = False, limit: int = 100, offset: int = 0
    ) -> list[Row]:
        """Return ``failure_summary`` rows with the run's title, newest first, ``offset`` of them passed over.

        Failures of trials stand with their campaign.
        """
        clauses, values = where(project=project, role="user")
        if unresolved:
            clauses += " AND resolved_at IS NULL"
        with self._database.reading() as connection:
            rows = asked(
                connection,
                "SELECT *, (SELECT title FROM runs WHERE runs.run_id = failure_summary.run_id) AS title"
                f" FROM failure_summary {clauses} ORDER BY created_at DESC, capsule_id DESC LIMIT ? OFFSET ?",
                (*values, limit, offset),
            )
        return all_sound("capsules", rows)

    def put_blob(self, data: bytes, media_type: str) -> str:
        """Store bytes once under their SHA-256 and return ``sha256:<hex>``."""
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        try:
            with self._database.writing() as connection:
                connection.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?, ?)", (digest, media_type, data))
        except StoreError:
            if not self._database.kept.refused_blob(digest, media_type, data):
                raise
        return digest

    def blob(self, digest: str) -> bytes:
        """Return stored bytes; ``NotFound`` if there are none."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT data FROM blobs WHERE digest = ?", (digest,)).fetchone()
        if row is None:
            raise NotFound(f"no blob {digest[:100]!r}")
        return bytes(row[0])

    def add_cell(self, cell: dict[str, Any]) -> None:
        """Store one executed notebook cell."""
        columns = ", ".join(cell)
        marks = ", ".join("?" for _ in cell)
        # Whoever executes the next cell waits meanwhile.
        with Patience(_CELL_SECONDS).used(), self._database.writing() as connection:
            connection.execute(f"INSERT OR REPLACE INTO cells ({columns}) VALUES ({marks})", tuple(cell.values()))

    def cells(self, *, run_id: str | None = None, session_id: str | None = None, limit: int = 1_000) -> list[Row]:
        """Return the last ``limit`` executed cells in their order of execution."""
        clauses, values = where(run_id=run_id, session_id=session_id)
        with self._database.reading() as connection:
            rows: Sequence[Any] = connection.execute(
                f"SELECT * FROM cell_history {clauses} ORDER BY started_at DESC, seq DESC LIMIT ?", (*values, limit)
            ).fetchall()
        return all_sound("cells", reversed(rows))
