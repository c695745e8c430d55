"""``Storage``: the public handle on one store folder."""

from __future__ import annotations

import glob
import json
import os
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watcherml.errors import StoreError
from watcherml.store.database import Database, locate
from watcherml.store.patience import Patience
from watcherml.store.runs import Row, Runs

if TYPE_CHECKING:
    from watcherml.platform import ProcessId
    from watcherml.store.audit import Audit
    from watcherml.store.evidence import Evidence

# Who reads waits no longer than this for what would only make the answer newer.
_READER_SECONDS = 1.0
# Who asks again and again keeps no writer waiting where readers lock the store; what ended is seen after this.
_SETTLED_SECONDS = 1.0


class Storage:
    """Runs, evidence and audit trail of one ``.watcherml`` folder.

    ``path`` is the folder; without it WATCHERML_DIR counts, then ``./.watcherml`` of the working directory at the
    time of the call. Creating a Storage writes nothing. Reading raises ``StoreError`` where there is no store. A folder
    with a store of WatcherML 0.1 is read and never written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        clock: Callable[[], float] = time.time,
        alive: Callable[[ProcessId], bool] | None = None,
    ) -> None:
        self.path: Path = locate(path)
        self.clock = clock
        self.alive = alive or _is_alive
        self.database = Database(self.path)
        self.runs = Runs(self.database)
        self._settled_at = float("-inf")

    # These parts are imported on first use, so that a plain listing of runs starts without them.
    @cached_property
    def evidence(self) -> Evidence:
        """Capsules, blobs and cells."""
        from watcherml.store.evidence import Evidence

        return Evidence(self.database)

    @cached_property
    def audit(self) -> Audit:
        """Documents on record, campaigns and trials."""
        from watcherml.store.audit import Audit

        return Audit(self.database)

    def __repr__(self) -> str:
        return f"Storage({str(self.path)!r})"

    @property
    def exists(self) -> bool:
        """Whether the folder holds a store already."""
        return self.database.exists

    @property
    def is_older(self) -> bool:
        """Whether it is a store of WatcherML 0.1: what it says of campaigns is its claim and was not checked here."""
        return self.database.is_older

    @property
    def writable(self) -> bool:
        """Whether there is a store that can be written as it is; reading leaves any other one untouched."""
        return self.database.writable

    def create(self) -> None:
        """Make the folder and the database if they do not exist."""
        with self.database.writing():
            pass

    def settle(self) -> None:
        """Take endings that were put aside and end runs whose process is gone, if the store can be written.

        Otherwise leave it as it is: somebody who only wants to read is not kept from it by a full disk, nor for long by
        a lock.
        """
        self._settled_at = time.monotonic()
        if self.writable and not self.database.reads_copy:
            try:
                with Patience(_READER_SECONDS).used():
                    self.runs.take_endings()
                    self.runs.reconcile(self.alive, self.clock())
            except StoreError:
                pass
            self._see_endings()

    def fold(self, run_id: str) -> None:
        """Bring a run's journal into the database if there is one and the store can be written.

        In any other store, and in one that is full or locked, reading sees the journal through a copy. A journal that
        cannot be read stays, and is told as a row is that a list leaves out.
        """
        if not any(self.runs.spool_folder.glob(f"{glob.escape(run_id)}.*")):
            return
        from watcherml.store import journal

        journal.tell_unreadable(self.runs.spool_folder, run_id)
        if self.database.reads_copy or not self.writable:
            return
        try:
            with Patience(_READER_SECONDS).used():
                self.runs.fold(run_id)
        except StoreError:
            self.database.read_copy()

    def take_endings(self) -> None:
        """Bring endings that were put aside into the store; where it does not take them, reading sees them."""
        if self.runs.endings_wait and self.writable and not self.database.reads_copy:
            with Patience(_READER_SECONDS).used():
                self.runs.take_endings()
            self._see_endings()

    def _settle_again(self) -> None:
        if time.monotonic() - self._settled_at > _SETTLED_SECONDS:
            self.settle()
        else:
            self.take_endings()

    def _see_endings(self) -> None:
        if self.runs.endings_wait:  # the store does not take them now
            self.database.read_copy()

    def get_run(self, run_id: str) -> Row:
        """Return one run as a plain dict (config, facts, status, times in seconds since 1970).

        A run whose process is gone is ended first, if the store can be written. Raises ``NotFound`` for an unknown id.
        """
        self._settle_again()
        return self.runs.get(run_id)

    def get_capsule(self, run_id: str) -> dict[str, Any]:
        """Return the failure capsule of a run as plain data; ``NotFound`` if the run has none."""
        self.take_endings()
        found: dict[str, Any] = json.loads(self.evidence.capsule(run_id)["document"])["value"]
        return found

    def list_runs(
        self, project: str | None = None, status: str | None = None, limit: int = 100, *, trials: bool = False
    ) -> list[Row]:
        """Return recorded runs, newest first; those of recovery trials only with ``trials``.

        Runs whose process is gone are ended first, if the store can be written.
        """
        self._settle_again()
        return self.runs.listing(project=project, status=status, role=None if trials else "user", limit=limit)

    def get_metrics(
        self, run_id: str, names: Sequence[str] | None = None, *, max_points: int | None = None
    ) -> list[Row]:
        """Return metric points as dicts with name, step, value and at (seconds since 1970), the latest included.

        ``max_points`` (at least 4) thins each metric to so many of its points in SQL; its lowest, highest and last
        value and a NaN stay. Raises ``NotFound`` for an unknown id.
        """
        self.take_endings()
        self.runs.get(run_id)
        self.fold(run_id)
        return self.runs.metrics(run_id, names, max_points=max_points)


def _is_alive(process: ProcessId) -> bool:
    from watcherml.platform import is_alive

    return is_alive(process)
