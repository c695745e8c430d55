"""The projects of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from watcherml.store.storage import Storage


def project_names(storage: Storage) -> list[str]:
    """Return the names of the projects that have runs, without those of trials, the latest one first."""
    if not storage.exists:
        return []
    with storage.database.reading() as connection:
        rows = connection.execute(
            "SELECT project FROM runs WHERE role = 'user' GROUP BY project ORDER BY MAX(started_at) DESC, project"
        ).fetchall()
    return [str(row[0]) for row in rows]
