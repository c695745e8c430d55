"""Reading the store for surfaces: plain rows and values, with what is derived at reading time."""

from __future__ import annotations

from watcherml.api import archive, older
from watcherml.api.result import RecoveryResult
from watcherml.campaign import resume
from watcherml.campaign.events import ENDED, words
from watcherml.campaign.ledger import Ledger
from watcherml.errors import NotFound
from watcherml.forensics.capsule import Capsule
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.verdict import Verdict
from watcherml.store.absent import no_store
from watcherml.store.runs import Row
from watcherml.store.sound import each
from watcherml.store.storage import Storage
from watcherml.trials.logs import both_tails, with_tails
from watcherml.trials.measure import OOM_CLASSES
from watcherml.trials.paths import TrialPaths


def runs(
    storage: Storage,
    *,
    project: str | None = None,
    status: str | None = None,
    limit: int = 100,
    trials: bool = False,
) -> list[Row]:
    """Return ``run_summary`` rows, newest first; ``trials`` includes the runs of campaigns."""
    if not storage.exists:
        return []
    storage.settle()
    return storage.runs.listing(project=project, status=status, role=None if trials else "user", limit=limit)


def failures(storage: Storage, *, project: str | None = None, unresolved: bool = False, limit: int = 100) -> list[Row]:
    """Return ``failure_summary`` rows, newest first."""
    if storage.exists:
        storage.settle()
    return storage.evidence.failures(project=project, unresolved=unresolved, limit=limit) if storage.exists else []


def campaigns(
    storage: Storage,
    *,
    project: str | None = None,
    status: str | None = None,
    verified: bool = False,
    source_run_id: str | None = None,
    limit: int = 100,
) -> list[Row]:
    """Return campaigns, newest first, with ``lifecycle``, a ``sentence``, and for a lost supervisor the status stopped.

    ``limit`` applies after the filters.
    """
    if not storage.exists:
        return []
    listed = storage.audit.campaigns(project=project, source_run_id=source_run_id)
    rows = each(listed, lambda row: _with_lifecycle(storage, row))
    rows += archive.imported_campaigns(storage, project=project, run_id=source_run_id)
    wanted = "verified" if verified else status
    return [row for row in rows if wanted is None or row["status"] == wanted][:limit]


def campaign(storage: Storage, campaign_id: str) -> Row:
    """Return one campaign's summary with ``lifecycle``; ``NotFound`` if there is none."""
    if not storage.exists:
        raise no_store(f"no campaign {campaign_id[:100]!r}", storage.path)
    try:
        return _with_lifecycle(storage, storage.audit.campaign(campaign_id))
    except NotFound:
        imported = (row for row in archive.imported_campaigns(storage) if row["campaign_id"] == campaign_id)
        if (found := next(imported, None)) is not None:
            return found
        raise


def campaign_parts(storage: Storage, campaign_id: str) -> tuple[RecoveryPlan, list[Row], Verdict | None]:
    """Return a campaign's plan, its trial rows, and its recomputed verdict (None while there is none)."""
    ledger = Ledger(storage, campaign_id)
    has_result = storage.audit.campaign(campaign_id)["last_change"] == "ended"
    verdict = RecoveryResult.of_campaign(campaign_id, storage).verdict if has_result else None
    return ledger.plan(), trials(storage, campaign_id), verdict


def trials(storage: Storage, campaign_id: str) -> list[Row]:
    """Return a campaign's trial rows with ``log_tail``: the last lines that a trial printed that failed unexplained."""
    return with_tails(storage.path, storage.audit.trials(campaign_id))


def log_end(storage: Storage, trial_id: str) -> list[str]:
    """Return the last lines that a trial printed, whatever became of it; one that runs may print more."""
    return both_tails(TrialPaths.of(storage.path, trial_id))


def events(storage: Storage, campaign_id: str, after: int = 0) -> list[Row]:
    """Return a campaign's events with ``words``: one line for a person."""
    found = storage.audit.events(campaign_id, after)
    return [{**event, "words": words(event["type"], event["body"])} for event in found]


def run(storage: Storage, run_id: str) -> Row:
    """Return one run's row; ``NotFound`` if there is none."""
    if not storage.exists:
        raise no_store(f"no run {run_id[:100]!r}", storage.path)
    storage.settle()
    return storage.get_run(run_id)


def capsule(storage: Storage, run_id: str) -> Capsule | None:
    """Return a run's last capsule as a value, None if it has none."""
    storage.take_endings()
    try:
        document = storage.evidence.capsule(run_id)["document"]
    except NotFound:
        return None
    if storage.is_older:
        return older.capsule(storage.get_run(run_id), storage.get_capsule(run_id))
    return Capsule.from_json(document)


def is_recoverable(failure_class: str) -> bool:
    """Tell whether trials can be planned for a failure of this class; whether one helps is another question."""
    return failure_class in OOM_CLASSES


def _with_lifecycle(storage: Storage, row: Row) -> Row:
    if storage.is_older:
        return {**row, "lifecycle": "ended"} if row["last_change"] == ENDED else older.unfinished(row)
    state = resume.lifecycle(storage, row["campaign_id"])
    found = {**row, "lifecycle": state}
    if state != "ended":
        found["sentence"] = resume.sentence(storage, row["campaign_id"], state)
    if state == "interrupted":
        found.update(status="stopped", reason_code="supervisor_lost")
    return found
