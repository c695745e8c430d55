"""``Storage``: the public handle on one store folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from watcherml.platform import ProcessId, is_alive
from watcherml.store.audit import Audit
from watcherml.store.database import Database, locate
from watcherml.store.evidence import Evidence
from watcherml.store.runs import Row, Runs


class Storage:
    """Runs, evidence and audit trail of one ``.watcherml`` folder.

    ``path`` is the folder; without it WATCHERML_DIR counts, then ``./.watcherml`` of the working directory at the
    time of the call. Creating a Storage writes nothing. Reading raises ``StoreError`` where there is no store.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        clock: Callable[[], float] = time.time,
        alive: Callable[[ProcessId], bool] = is_alive,
    ) -> None:
        self.path: Path = locate(path)
        self.clock = clock
        self.alive = alive
        self.database = Database(self.path)
        self.runs = Runs(self.database)
        self.evidence = Evidence(self.database)
        self.audit = Audit(self.database)

    def __repr__(self) -> str:
        return f"Storage({str(self.path)!r})"

    @property
    def exists(self) -> bool:
        """Whether the folder holds a store already."""
        return self.database.exists

    def create(self) -> None:
        """Make the folder and the database if they do not exist."""
        with self.database.writing():
            pass

    def settle(self) -> None:
        """Reconcile runs whose process is gone, if the store can be written; otherwise leave it as it is."""
        if self.exists and os.access(self.path, os.W_OK) and os.access(self.database.path, os.W_OK):
            self.runs.reconcile(self.alive, self.clock())

    def get_run(self, run_id: str) -> Row:
        """Return one run as a plain dict (config, facts, status, times in seconds since 1970).

        Raises ``NotFound`` for an unknown id.
        """
        return self.runs.get(run_id)

    def get_capsule(self, run_id: str) -> dict[str, Any]:
        """Return the failure capsule of a run as plain data; ``NotFound`` if the run has none."""
        found: dict[str, Any] = json.loads(self.evidence.capsule(run_id)["document"])["value"]
        return found

    def list_runs(self, project: str | None = None, status: str | None = None, limit: int = 100) -> list[Row]:
        """Return recorded runs, newest first, without the trials of campaigns."""
        return self.runs.listing(project=project, status=status, limit=limit)

    def get_metrics(self, run_id: str, names: Sequence[str] | None = None) -> list[Row]:
        """Return metric points as dicts with name, step, value and at (seconds since 1970)."""
        self.runs.get(run_id)
        return self.runs.metrics(run_id, names)
