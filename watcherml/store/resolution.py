"""The mark on a failure: resolved, by whom (a person, or a campaign that verified a recovery), when, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from watcherml.errors import StoreError
from watcherml.store.absent import no_store

if TYPE_CHECKING:
    from watcherml.store.storage import Storage


class Resolution(NamedTuple):
    """What a run's last capsule says: ``at`` is in seconds since 1970, None while the failure is open."""

    run_id: str
    failure_class: str
    at: float | None
    by: str | None
    note: str | None

    def to_row(self) -> dict[str, object]:
        """Return the columns of the view ``failure_summary`` that it stands in."""
        return {"resolved_at": self.at, "resolved_by": self.by, "resolved_note": self.note}


def resolution(storage: Storage, run_id: str) -> Resolution:
    """Return the mark on a run's failure; ``NotFound`` for an unknown run and for one without a capsule."""
    if not storage.exists:
        raise no_store(f"no run {run_id[:100]!r}", storage.path)
    storage.get_run(run_id)  # an unknown run is another answer than a run that never failed
    row = storage.evidence.capsule(run_id)
    return Resolution(run_id, row["failure_class"], row["resolved_at"], row["resolved_by"], row["resolved_note"])


def mark(storage: Storage, run_id: str, at: float | None, by: str | None = None, note: str | None = None) -> None:
    """Mark every capsule of a run that is not marked so already; ``at`` None opens them again.

    A run that failed twice has two capsules and one resolution. ``StoreError`` for a store of WatcherML 0.1.
    """
    if storage.is_older:
        raise StoreError(
            f"{storage.path} holds a store of WatcherML 0.1, which is only read",
            remedy="What its failures are marked as stays as it is.",
        )
    with storage.database.writing() as connection:
        mark_in(connection, run_id, at, by, note)


def mark_in(connection: Any, run_id: str, at: float | None, by: str | None = None, note: str | None = None) -> None:
    """Do what ``mark`` does inside a transaction that is open."""
    clause = "resolved_at IS NULL" if at is not None else "resolved_at IS NOT NULL"
    connection.execute(
        f"UPDATE capsules SET resolved_at = ?, resolved_by = ?, resolved_note = ? WHERE run_id = ? AND {clause}",
        (at, by, note, run_id),
    )
