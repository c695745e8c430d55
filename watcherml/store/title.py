"""A person's name for a run. Its id never changes, and nothing that is sealed holds the name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from watcherml.store.absent import no_store

if TYPE_CHECKING:
    from watcherml.store.storage import Storage


def title(storage: Storage, run_id: str) -> str | None:
    """Return a run's name, None if it has none; ``NotFound`` for an unknown run."""
    if not storage.exists:
        raise no_store(f"no run {run_id[:100]!r}", storage.path)
    found = storage.get_run(run_id)["title"]
    return None if found is None else str(found)


def set_title(storage: Storage, run_id: str, name: str | None) -> None:
    """Name a run, or with None take its name away. ``StoreError`` for a store that cannot be written."""
    with storage.database.writing() as connection:
        connection.execute("UPDATE runs SET title = ? WHERE run_id = ?", (name, run_id))
