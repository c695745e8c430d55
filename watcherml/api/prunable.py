"""What pruning could take, for somebody who has not said yet what should go."""

from __future__ import annotations

from typing import Any

from watcherml.api.belongings import old_runs, trial_data
from watcherml.store.removal import Removal, measure
from watcherml.store.storage import Storage


def prunable(storage: Storage, project: str | None = None) -> list[dict[str, Any]]:
    """Return what ``watcher prune`` could take, one entry a choice, as plain JSON values; empty if nothing could go.

    ``what`` is ``runs`` or ``trials``, ``flags`` what chooses it, ``kept`` sentences about what stays in any case;
    sizes are bytes, in the database about.
    """
    with storage.database.reading() as connection:
        runs, kept = old_runs(storage, connection, project, None, 0)
        trials = trial_data(storage, connection, project, None)
        choices: tuple[tuple[str, list[str], Removal, list[str]], ...] = (
            ("runs", ["--keep N", "--older-than DAYS"], runs, kept),
            ("trials", ["--trials"], trials, []),
        )
        return [
            {"what": what, "flags": flags, **_size(measure(connection, removal)._asdict()), "kept": stays}
            for what, flags, removal, stays in choices
            if removal.runs or removal.folders
        ]


def _size(measured: dict[str, int]) -> dict[str, int]:
    return {key: measured[key] for key in ("runs", "points", "database_bytes", "file_bytes")}
