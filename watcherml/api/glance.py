"""What a narrow view beside a notebook asks of a store: the newest of each list, sums, and the parts of one page."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from watcherml.api import archive, data
from watcherml.api.recover import Campaign
from watcherml.api.result import RecoveryResult
from watcherml.errors import InvalidValue, NotFound
from watcherml.forensics.capsule import Capsule
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.verdict import Verdict
from watcherml.sealed.fields import CampaignId, RunId
from watcherml.sealed.record import checked
from watcherml.store import coarse, pages, points
from watcherml.store.pages import Cut
from watcherml.store.runs import Row
from watcherml.store.sound import each
from watcherml.store.storage import Storage

_POINTS = 900
# As in the web UI: more points than this are summed up in stretches instead of being read one by one.
_MANY, _STRETCHES = 50_000, 300


class Glance(NamedTuple):
    """The newest rows of each list, and how many there are in all. Unfinished campaigns lead, however old they are."""

    failures: list[Row]
    open_failures: int
    failure_total: int
    campaigns: list[Row]
    unfinished: int
    campaign_total: int
    runs: list[Row]
    running: int
    run_total: int


class RunParts(NamedTuple):
    """What the page of a run is made of, and what it leads to."""

    row: Row
    metrics: list[Row]
    samples: list[Row]
    artifacts: list[Row]
    failed: bool
    campaigns: list[Row]


class CampaignParts(NamedTuple):
    """What the page of a campaign is made of.

    ``state`` is prepared, running, interrupted, ended or imported; ``plan`` is None for one of WatcherML 0.1, and
    ``verdict`` while there is none. ``standing`` says whose verdict it is.
    """

    row: Row
    state: str
    events: list[Row]
    trials: list[Row]
    plan: RecoveryPlan | None
    verdict: Verdict | None
    standing: str


def open_store(path: Path) -> Storage:
    """Return a handle on a folder; nothing is read or made yet."""
    return Storage(path)


def glance(storage: Storage, rows: int) -> Glance:
    """Return at most ``rows`` of each list; all empty where there is no store yet."""
    if not storage.exists:
        return Glance([], 0, 0, [], 0, 0, [], 0, 0)
    storage.settle()
    with storage.database.reading() as connection:
        found = _glance(connection, Cut(rows))
    # Only those without a verdict are looked at again: whether somebody still runs them is not in a row.
    standing = each(
        found.campaigns,
        lambda row: {**row, "lifecycle": "ended"} if row["status"] else data.campaign(storage, str(row["campaign_id"])),
    )
    return found._replace(campaigns=standing)


def _glance(connection: sqlite3.Connection, cut: Cut) -> Glance:
    failures = pages.failures(connection, cut)
    runs = pages.runs(connection, cut)
    unfinished = pages.campaigns(connection, cut, status=pages.UNFINISHED)
    newest = pages.campaigns(connection, cut)
    known = {row["campaign_id"] for row in unfinished.rows}
    campaigns = [*unfinished.rows, *(row for row in newest.rows if row["campaign_id"] not in known)]
    return Glance(
        failures=failures.rows,
        open_failures=pages.failures(connection, Cut(0), resolved=False).total,
        failure_total=failures.total,
        campaigns=campaigns[: cut.limit],
        unfinished=unfinished.total,
        campaign_total=newest.total,
        runs=runs.rows,
        running=pages.run_counts(connection).get("running", 0),
        run_total=runs.total,
    )


def run_parts(storage: Storage, run_id: str, charts: int) -> RunParts:
    """Return a run with the points of its first ``charts`` metrics.

    Raises ``InvalidValue`` for text that is no id and ``NotFound`` for an unknown run.
    """
    row = data.run(storage, _checked(storage, RunId, "run", run_id))
    storage.fold(run_id)
    with storage.database.reading() as connection:
        names, _ = pages.metric_names(connection, run_id, Cut(charts))
        few = coarse.count(connection, run_id) <= _MANY
        read, most = (points.thinned, _POINTS) if few else (coarse.coarse, _STRETCHES)
        metrics = read(connection, run_id, names, most)
    samples = storage.runs.samples(run_id, max_points=_POINTS)
    failed = _has_capsule(storage, run_id)
    campaigns = data.campaigns(storage, source_run_id=run_id)
    return RunParts(row, metrics, samples, storage.runs.artifacts(run_id), failed, campaigns)


def failure_parts(storage: Storage, run_id: str) -> tuple[Row, Capsule, list[Row]]:
    """Return a run, its last capsule, and the campaigns that started from it.

    Raises ``InvalidValue`` for text that is no id and ``NotFound`` for an unknown run or one that did not fail.
    """
    row = data.run(storage, _checked(storage, RunId, "run", run_id))
    capsule = data.capsule(storage, run_id)
    if capsule is None:
        raise NotFound(f"run {run_id} has no failure capsule", remedy="Its own page shows everything else.")
    return row, capsule, data.campaigns(storage, source_run_id=run_id)


def campaign_parts(storage: Storage, campaign_id: str) -> CampaignParts:
    """Return a campaign as it stands, its verdict recomputed from its trials.

    Raises ``InvalidValue`` for text that is no id, ``NotFound`` for an unknown one, and ``TrustError`` or
    ``InvalidValue`` where what is on record does not hold together.
    """
    row = data.campaign(storage, _checked(storage, CampaignId, "campaign", campaign_id))
    state = str(row["lifecycle"])
    if state == "imported":
        found = archive.imported_result(storage, campaign_id)
        if found is None:
            raise NotFound(f"no imported campaign {campaign_id}")
        chain = found.chain
        return CampaignParts(row, state, [], archive.trial_rows(chain), chain.plan, found.verdict, "imported")
    trials = data.trials(storage, campaign_id)
    if storage.is_older:
        return CampaignParts(row, state, [], trials, None, None, "claimed_by_0.1")
    events = data.events(storage, campaign_id)
    if state == "ended":
        result = RecoveryResult.of_campaign(campaign_id, storage)
        return CampaignParts(row, state, events, trials, result.chain.plan, result.verdict, result.standing)
    plan = RecoveryPlan.from_json(storage.audit.record(str(row["plan_digest"]), RecoveryPlan.KIND))
    return CampaignParts(row, state, events, trials, plan, None, "")


def stop_campaign(storage: Storage, campaign_id: str, by: str) -> str:
    """Ask a running campaign to end, and return where it stood when it was asked; one that does not run is left alone.

    Raises as ``campaign_parts`` does.
    """
    state = str(data.campaign(storage, _checked(storage, CampaignId, "campaign", campaign_id))["lifecycle"])
    if state == "running":
        Campaign(campaign_id, storage).stop(by)
    return state


def _has_capsule(storage: Storage, run_id: str) -> bool:
    try:
        storage.evidence.capsule(run_id)
    except NotFound:
        return False
    return True


def _checked(storage: Storage, kind: Any, what: str, text: str) -> str:
    """Return an id that can do no harm in a path or a pattern."""
    if storage.is_older:
        return text  # 0.1 gave ids as it liked; there they are looked up and never become names of files
    try:
        return str(checked(kind, text, what))
    except InvalidValue as error:
        got = repr(text[:100])
        raise InvalidValue(f"the id of a {what}", expected=error.expected, got=got) from None
