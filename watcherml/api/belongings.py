"""What belongs to a run or a campaign and goes with it, as a removal."""

from __future__ import annotations

import glob
import os
import sqlite3
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from watcherml.campaign import resume
from watcherml.campaign.ledger import Ledger
from watcherml.errors import CampaignError, RunError
from watcherml.protocol.authorization import Authorization
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.verdict import RecoveryChain
from watcherml.store.removal import Removal
from watcherml.store.sound import all_sound
from watcherml.store.storage import Storage


def of_run(storage: Storage, connection: sqlite3.Connection, run_id: str, row: sqlite3.Row, campaigns: bool) -> Removal:
    """Return a run with all that goes with it; raises where it is going on or something stands on it."""
    if row["status"] == "running":
        raise going_on(run_id)
    here = row["origin"] == "here"
    trial_of = column(connection, "SELECT campaign_id FROM trials WHERE run_id = ?", run_id) if here else ()
    if trial_of:
        raise CampaignError(
            f"run {run_id} is a trial of campaign {trial_of[0]}, which stands on it",
            remedy="Delete the campaign, or take the working data of its trials with `watcher prune --trials`.",
        )
    own = column(connection, "SELECT campaign_id FROM campaigns WHERE source_run_id = ?", run_id) if here else ()
    if own and not campaigns:
        raise CampaignError(
            f"run {run_id} cannot be deleted alone, because campaigns stand on it",
            expected="no campaign, or --campaigns to delete them too",
            got=", ".join(own)[:500],
        )
    removal = of_campaigns(storage, connection, own)
    records = _prepared_for(connection, run_id) if here else ()
    return replace(
        removal,
        runs=(*removal.runs, run_id),
        records=tuple(dict.fromkeys((*removal.records, *records))),
        folders=(*removal.folders, *_run_files(storage, run_id)),
    )


def of_campaigns(storage: Storage, connection: sqlite3.Connection, campaign_ids: tuple[str, ...]) -> Removal:
    """Return whole campaigns with their trials; what other campaigns of the same plan need stays."""
    runs: list[str] = []
    records: list[str] = []
    folders: list[Path] = []
    for campaign_id in campaign_ids:
        _refuse_running(storage, campaign_id)
        shared = _shared_with_others(connection, campaign_id, campaign_ids)
        own = column(connection, "SELECT digest FROM records WHERE campaign_id = ?", campaign_id)
        own = (*own, *_rankings(connection, campaign_id))
        records += [digest for digest in own if digest not in shared and digest not in records]
        runs += _trial_runs(connection, campaign_id)
        trials = column(connection, "SELECT trial_id FROM trials WHERE campaign_id = ?", campaign_id)
        folders += [storage.path / "trials" / trial_id for trial_id in trials]
        folders.append(storage.path / "artifacts" / campaign_id)
    for run_id in runs:
        folders += _run_files(storage, run_id)
    there = [folder for folder in folders if os.path.lexists(folder)]
    return Removal(runs=tuple(runs), campaigns=campaign_ids, records=tuple(records), folders=tuple(there))


def _trial_runs(connection: sqlite3.Connection, campaign_id: str) -> tuple[str, ...]:
    return column(
        connection,
        "SELECT run_id FROM runs WHERE role = 'trial' AND origin = 'here' AND (campaign_id = ?1 OR run_id IN"
        " (SELECT run_id FROM trials WHERE campaign_id = ?1))",
        campaign_id,
    )


def _shared_with_others(connection: sqlite3.Connection, campaign_id: str, going: Iterable[str]) -> set[str]:
    """Return the digests that campaigns of the same plan, which stay, have in common with this one.

    Two campaigns may share an approval or a ranking; its row then names the one that came first.
    """
    others = column(
        connection,
        "SELECT campaign_id FROM campaigns WHERE plan_digest ="
        " (SELECT plan_digest FROM campaigns WHERE campaign_id = ?1) AND campaign_id <> ?1",
        campaign_id,
    )
    shared: set[str] = set()
    for other in set(others) - set(going):
        shared.update(column(
            connection,
            "SELECT json_extract(body, '$.digest') FROM events WHERE campaign_id = ? AND type = 'authorized'",
            other,
        ))  # fmt: skip
        shared.update(_rankings(connection, other))
    return shared


def _rankings(connection: sqlite3.Connection, campaign_id: str) -> list[str]:
    documents = column(
        connection, "SELECT document FROM records WHERE campaign_id = ? AND kind = ?", campaign_id, RecoveryChain.KIND
    )
    return [RecoveryChain.from_json(document).ranking.digest for document in documents]


def _prepared_for(connection: sqlite3.Connection, run_id: str) -> tuple[str, ...]:
    """Return the plans that were prepared for a run and the approvals given to them: without it they are of no use."""
    plans = column(
        connection,
        "SELECT digest FROM records WHERE kind = ? AND json_extract(document, '$.value.source.run_id') = ?",
        RecoveryPlan.KIND,
        run_id,
    )
    found = list(plans)
    for plan in plans:
        found += column(
            connection,
            "SELECT digest FROM records WHERE kind = ? AND json_extract(document, '$.value.plan_digest') = ?",
            Authorization.KIND,
            plan,
        )
    return tuple(found)


def _run_files(storage: Storage, run_id: str) -> list[Path]:
    journal = storage.runs.spool_folder.glob(f"{glob.escape(run_id)}.*")
    folder = storage.path / "artifacts" / run_id
    return [*journal, *([folder] if os.path.lexists(folder) else [])]


def old_runs(
    storage: Storage, connection: sqlite3.Connection, project: str | None, before: float | None, keep: int | None
) -> tuple[Removal, list[str]]:
    """Return the ended runs from before a time, beyond the newest ``keep`` of each project, and what stays."""
    found = connection.execute(
        "SELECT run_id, project, status, COALESCE(ended_at, heartbeat_at) AS at, EXISTS (SELECT 1 FROM campaigns c"
        " WHERE c.source_run_id = runs.run_id) AS stands FROM runs WHERE role = 'user' AND (?1 IS NULL OR project = ?1)"
        " ORDER BY started_at DESC, run_id",
        (project,),
    ).fetchall()
    seen: dict[str, int] = {}
    going: list[str] = []
    sources = running = 0
    for row in all_sound("runs", found):
        seen[row["project"]] = seen.get(row["project"], 0) + 1
        chosen = (keep is None or seen[row["project"]] > keep) and (before is None or row["at"] < before)
        sources += chosen and row["stands"]
        running += chosen and row["status"] == "running"
        if chosen and row["status"] != "running" and not row["stands"]:
            going.append(row["run_id"])
    records = [digest for run_id in _with_plans(connection, going) for digest in _prepared_for(connection, run_id)]
    files = [path for run_id in going for path in _run_files(storage, run_id)]
    kept: list[str] = []
    if sources:
        told = (
            "1 run stays: a campaign stands on it" if sources == 1 else f"{sources} runs stay: campaigns stand on them"
        )
        kept.append(f"{told} (`watcher delete RUN_ID --campaigns`).")
    if running:
        kept.append("1 run stays: it is going on." if running == 1 else f"{running} runs stay: they are going on.")
    return Removal(runs=tuple(going), records=tuple(dict.fromkeys(records)), folders=tuple(files)), kept


def _with_plans(connection: sqlite3.Connection, run_ids: list[str]) -> list[str]:
    planned = column(
        connection,
        "SELECT DISTINCT json_extract(document, '$.value.source.run_id') FROM records WHERE kind = ?",
        RecoveryPlan.KIND,
    )
    return sorted(set(planned) & set(run_ids))


def trial_data(storage: Storage, connection: sqlite3.Connection, project: str | None, before: float | None) -> Removal:
    """Return the runs and folders of the trials of ended campaigns; what is on record of them stays."""
    ended = column(
        connection,
        "SELECT campaign_id FROM campaigns JOIN verdicts USING (campaign_id) WHERE (?1 IS NULL OR project = ?1)"
        " AND (?2 IS NULL OR at < ?2)",
        project,
        before,
    )
    runs: list[str] = []
    folders: list[Path] = []
    for campaign_id in ended:
        runs += _trial_runs(connection, campaign_id)
        trials = column(connection, "SELECT trial_id FROM trials WHERE campaign_id = ?", campaign_id)
        folders += [storage.path / "trials" / trial_id for trial_id in trials]
    folders += [path for run_id in runs for path in _run_files(storage, run_id)]
    there = tuple(folder for folder in folders if os.path.lexists(folder))
    return Removal(runs=tuple(runs), folders=there)


def _refuse_running(storage: Storage, campaign_id: str) -> None:
    state = resume.lifecycle(storage, campaign_id)
    if state == "running" or (state == "prepared" and Ledger(storage, campaign_id).comes_up()):
        raise has_supervisor(campaign_id)


def has_supervisor(campaign_id: str) -> CampaignError:
    """Return the error for a campaign that is going on."""
    return CampaignError(
        f"campaign {campaign_id} cannot be deleted while it is going on",
        expected="one that has ended or lost its supervisor",
        remedy=f"Stop it first: `watcher stop {campaign_id}`.",
    )


def going_on(run_id: str) -> RunError:
    """Return the error for a run that is going on."""
    return RunError(
        f"run {run_id} cannot be deleted while it is going on",
        expected="a run that has ended",
        remedy="Wait for its end, or end its process.",
    )


def column(connection: sqlite3.Connection, text: str, *values: Any) -> tuple[str, ...]:
    """Return the first column of a query's rows as text."""
    return tuple(str(row[0]) for row in connection.execute(text, values))
