"""Getting rid of data: what would go is said first, then it goes whole.

A verdict has to be checkable from the store alone. So a campaign goes only as a whole, and a run that campaigns stand
on only together with them; what was on record leaves a ``Deletion`` with its digests behind. Imported runs and their
results were never on record and go like any other run.
"""

from __future__ import annotations

import getpass
import os
import sqlite3
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from watcherml.api.belongings import column, going_on, has_supervisor, of_campaigns, of_run, old_runs, trial_data
from watcherml.errors import CampaignError, InvalidValue, NotFound, StoreError
from watcherml.platform import exclusive_lock
from watcherml.recorder.redact import redact_text
from watcherml.store import removal as rows
from watcherml.store.removal import Deletion, Gone, Measure, Removal
from watcherml.store.storage import Storage

DAY_SECONDS = 86_400.0
_WORTH_SHRINKING_BYTES = 2**20
Where = Storage | str | os.PathLike[str] | None


@dataclass(frozen=True)
class Planned:
    """What would go: ``what`` in words, the removal, how much it is, and sentences about what stays."""

    what: str
    removal: Removal
    measure: Measure
    kept: tuple[str, ...] = ()
    leftovers: int = 0

    @property
    def empty(self) -> bool:
        """Whether nothing would go."""
        one = self.removal
        return not (one.runs or one.campaigns or one.records or one.imports or one.folders)

    def to_data(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return {
            "kind": "removal",
            "what": self.what,
            "run_ids": list(self.removal.runs),
            "campaign_ids": list(self.removal.campaigns),
            "imported_results": len(self.removal.imports),
            "leftovers": self.leftovers,
            **self.measure._asdict(),
            "kept": list(self.kept),
        }


@dataclass(frozen=True)
class Removed:
    """What went, how many bytes the store is smaller now, and what could not be done."""

    planned: Planned
    given_back_bytes: int
    deletion: str | None
    problems: tuple[str, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return {**self.planned.to_data(), "removed": True, "given_back_bytes": self.given_back_bytes,
                "deletion": self.deletion, "problems": list(self.problems)}  # fmt: skip


def plan_deletion(identifier: str, *, campaigns: bool = False, storage: Where = None) -> Planned:
    """Return what deleting a run, a campaign or an imported campaign takes; a run is looked for first.

    ``campaigns`` includes the campaigns that stand on the run. Raises ``NotFound``, ``RunError`` or ``CampaignError``
    for one that is going on, ``CampaignError`` for a run that campaigns stand on, and for the run of a trial.
    """
    where = _opened(storage)
    with where.database.reading() as connection:
        row = connection.execute(
            "SELECT status, origin, role, campaign_id FROM runs WHERE run_id = ?", (identifier,)
        ).fetchone()
        if row is not None:
            what = f"{'imported run' if row['origin'] == 'imported' else 'run'} {identifier}"
            removal = of_run(where, connection, identifier, row, campaigns)
        elif connection.execute("SELECT 1 FROM campaigns WHERE campaign_id = ?", (identifier,)).fetchone():
            what = f"campaign {identifier}"
            removal = of_campaigns(where, connection, (identifier,))
        else:
            what = f"imported campaign {identifier}"
            removal = Removal(imports=column(
                connection, "SELECT digest FROM imports WHERE campaign_id = ?", identifier))  # fmt: skip
            if not removal.imports:
                raise NotFound(
                    f"no run and no campaign {identifier[:100]!r} in {where.path}",
                    remedy="`watcher runs --trials` and `watcher recoveries` list them.",
                )
        return Planned(what, removal, rows.measure(connection, removal))


def plan_prune(
    *,
    older_than_days: float | None = None,
    keep: int | None = None,
    project: str | None = None,
    trials: bool = False,
    storage: Where = None,
) -> Planned:
    """Return what pruning takes: ended runs older than ``older_than_days`` beyond the newest ``keep`` of each project.

    With neither, no run goes. ``trials`` takes instead the runs and folders of the trials of ended campaigns, whose
    requests and results stay on record. What a crash has left over always goes. Runs that campaigns stand on stay.
    Raises ``InvalidValue`` for a number below 0 or not below 1,000,000.
    """
    where = _opened(storage)
    for name, value in (("--older-than", older_than_days), ("--keep", keep)):
        if value is not None and not 0 <= value < 1e6:
            raise InvalidValue(name, expected="a number of at least 0 and below 1000000", got=str(value))
    before = None if older_than_days is None else where.clock() - older_than_days * DAY_SECONDS
    with where.database.reading() as connection:
        kept: list[str] = []
        removal, words = Removal(), "nothing"
        if trials:
            removal = trial_data(where, connection, project, before)
            words = "the working data of trials"
        elif before is not None or keep is not None:
            removal, kept = old_runs(where, connection, project, before, keep)
            words = "old runs"
        left = rows.orphans(connection, where.path, _is_gone)
        removal = replace(removal, folders=(*removal.folders, *left))
        words = f"{words} and leftovers" if left and words != "nothing" else "leftovers" if left else words
        return Planned(words, removal, rows.measure(connection, removal), tuple(kept), len(left))


def carry_out(planned: Planned, *, by: str = "", reason: str = "", storage: Where = None) -> Removed:
    """Delete what was planned in one transaction, then its files, and give the space back.

    ``by`` is who deletes, by default the user of this process; secrets in it and in ``reason`` are redacted. Raises
    ``RunError`` or ``CampaignError``, and changes nothing, where a run or campaign has started meanwhile.
    """
    where = _opened(storage)
    by, reason = redact_text(by), redact_text(reason)
    before = rows.database_bytes(where.database)
    removal, deletion = planned.removal, None
    if not planned.empty:
        with ExitStack() as locks:
            for campaign_id in removal.campaigns:
                _hold(locks, where, campaign_id)
            with where.database.writing() as connection:
                _check_still(connection, removal)
                measure = rows.measure(connection, removal)
                planned = replace(planned, measure=measure)
                deletion = _tombstone(connection, where, removal, measure, by or this_user(), reason)
                rows.erase(connection, removal, deletion)
    problems = rows.remove_folders(removal.folders)
    files = planned.measure.file_bytes - sum(rows.folder_bytes(folder) for folder in removal.folders)
    # Shrinking writes the whole database anew: without a deletion only where it is worth it.
    worth = min(_WORTH_SHRINKING_BYTES, before // 10) if planned.empty else 1
    if rows.free_bytes(where.database) >= max(1, worth):
        problem = rows.give_back(where.database)
        problems += [problem] if problem else []
    freed = max(0, before - rows.database_bytes(where.database)) + files
    return Removed(planned, freed, None if deletion is None else deletion.digest, tuple(problems))


def deletions(storage: Storage) -> list[Deletion]:
    """Return what was deleted from the audit trail, newest first."""
    if not storage.exists:
        return []
    with storage.database.reading() as connection:
        documents = column(
            connection, "SELECT document FROM records WHERE kind = ? ORDER BY at DESC, rowid DESC", Deletion.KIND
        )
    return [Deletion.from_json(one) for one in documents]


# -- at the moment of deleting ----------------------------------------------------------------------------------------


def _hold(locks: ExitStack, storage: Storage, campaign_id: str) -> None:
    """Keep a supervisor from taking the campaign up; ``CampaignError`` if one has it."""
    folder = storage.path / "artifacts" / campaign_id
    if folder.is_dir() and not locks.enter_context(exclusive_lock(folder / "lock")):
        raise has_supervisor(campaign_id)


def _check_still(connection: sqlite3.Connection, removal: Removal) -> None:
    for run_id in removal.runs:
        row = connection.execute("SELECT status FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        if row is not None and row[0] == "running":
            raise going_on(run_id)
        started = column(connection, "SELECT campaign_id FROM campaigns WHERE source_run_id = ?", run_id)
        if set(started) - set(removal.campaigns):
            raise CampaignError(
                f"nothing was deleted: a campaign that stands on run {run_id} was started meanwhile", got=started[-1]
            )


def _tombstone(
    connection: sqlite3.Connection, storage: Storage, removal: Removal, measure: Measure, by: str, reason: str
) -> Deletion | None:
    if not removal.records and not removal.campaigns:
        return None
    kinds = {
        digest: kind
        for digest in removal.records
        for (kind,) in connection.execute("SELECT kind FROM records WHERE digest = ?", (digest,))
    }
    return Deletion(
        deleted_by=by,
        reason=reason,
        at=storage.clock(),
        run_ids=removal.runs,
        campaign_ids=removal.campaigns,
        points=measure.points,
        records=tuple(Gone(kind, digest) for digest, kind in kinds.items()),
    )


def _is_gone(pid: int) -> bool:
    import psutil

    return not psutil.pid_exists(pid)


def this_user() -> str:
    """Return the user of this process, ``unknown`` where the system has no name."""
    try:
        return getpass.getuser()[:400] or "unknown"
    except (OSError, KeyError, ImportError):  # no entry for this user id, as in many containers
        return "unknown"


def _opened(storage: Where) -> Storage:
    where = storage if isinstance(storage, Storage) else Storage(storage)
    if not where.exists:
        raise StoreError("no WatcherML store", expected=f"a store in {where.path}", remedy="Point --data-dir at one.")
    if where.is_older:
        raise StoreError(f"{where.path} holds a store of WatcherML 0.1, which is only read",
                         remedy="Nothing writes to it any more: remove the folder as a whole.")  # fmt: skip
    where.settle()
    return where
