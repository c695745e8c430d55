"""``Ledger``: one campaign's rows, read back as values and appended as they happen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from watcherml.campaign import events
from watcherml.errors import CampaignError, DamagedRow
from watcherml.platform import ProcessId
from watcherml.protocol.authorization import Authorization
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.request import TrialRequest
from watcherml.protocol.result import Trial, TrialResult
from watcherml.protocol.verdict import RecoveryChain
from watcherml.store.runs import Row
from watcherml.store.sound import damaged, sound
from watcherml.store.storage import Storage

T = TypeVar("T")

# So long a campaign may be on record before its supervisor is: it is given up sooner where that did not come up.
_STARTING_SECONDS = 60.0


@dataclass(frozen=True)
class Settings:
    """Where a campaign runs on this machine, and which environment variables resupply redacted values (by path)."""

    project_root: str
    python: str
    dataset_path: str | None = None
    secrets: Mapping[str, str] = field(default_factory=dict)


class Ledger:
    """The campaign ``campaign_id`` of a store."""

    def __init__(self, storage: Storage, campaign_id: str) -> None:
        self.storage = storage
        self.campaign_id = campaign_id
        self._audit = storage.audit

    @classmethod
    def open_new(
        cls,
        storage: Storage,
        campaign_id: str,
        plan: RecoveryPlan,
        authorizations: tuple[Authorization, ...],
        rejected: Mapping[str, tuple[str, str]],
        settings: Settings,
    ) -> Ledger:
        """Put a campaign, its approvals and its rejections ((who, why) by proposal) on record.

        Raises ``CampaignError`` if the id is taken, or if another campaign runs this plan or is about to.
        """
        now = storage.clock()
        documents = [(one.digest, one.KIND, one.to_json()) for one in authorizations]
        happened: list[tuple[str, Mapping[str, Any]]] = [(events.PREPARED, vars(settings))]
        for one in authorizations:
            keys = ("proposal_id", "approved_by", "reason", "digest")
            happened.append((events.AUTHORIZED, {key: getattr(one, key) for key in keys}))
        for proposal_id, (by, reason) in rejected.items():
            happened.append((events.REJECTED, {"proposal_id": proposal_id, "rejected_by": by, "reason": reason}))
        row = {"campaign_id": campaign_id, "project": plan.source.project, "source_run_id": plan.source.run_id,
               "plan_digest": plan.digest, "created_at": now}  # fmt: skip
        other = storage.audit.open_campaign(row, documents, happened, lambda one: _is_on_its_way(storage, one))
        if other == campaign_id:
            raise CampaignError(f"campaign {campaign_id} exists already", remedy="Choose another --campaign-id.")
        if other is not None:
            raise already_run(other)
        return cls(storage, campaign_id)

    def take(self, process: ProcessId) -> None:
        """Put on record that a supervisor takes the campaign; ``CampaignError`` while another one runs its plan."""
        kind = events.STARTED if self.supervisor() is None else events.RESUMED
        now = self.storage.clock()
        other = self._audit.take_campaign(
            self.campaign_id, kind, process._asdict(), now, lambda one: _has_supervisor(self.storage, one)
        )
        if other is not None:
            raise already_run(other)

    def event(self, kind: str, body: Mapping[str, Any]) -> None:
        """Append an event."""
        self._audit.add_event(self.campaign_id, kind, body, self.storage.clock())

    def plan(self) -> RecoveryPlan:
        """Return the campaign's plan as it is on record."""
        row = self._audit.campaign(self.campaign_id)
        return RecoveryPlan.from_json(self._audit.record(row["plan_digest"], RecoveryPlan.KIND))

    def settings(self) -> Settings:
        """Return where the campaign runs."""
        found = self._bodies(events.PREPARED)
        if not found:
            raise damaged("events", self.campaign_id, "type", f"an event {events.PREPARED}", "none")
        return _made(Settings, self.campaign_id, found[0])

    def authorizations(self) -> tuple[Authorization, ...]:
        """Return the approvals given to this campaign."""
        digests = [self._text(body, "digest") for body in self._bodies(events.AUTHORIZED)]
        return tuple(Authorization.from_json(self._audit.record(one, Authorization.KIND)) for one in digests)

    def rejected(self) -> frozenset[str]:
        """Return the ids of proposals a person turned down."""
        return frozenset(self._text(body, "proposal_id") for body in self._bodies(events.REJECTED))

    def stop_requested(self) -> bool:
        """Tell whether somebody asked for the campaign's end since it last started."""
        kinds = [event["type"] for event in self._audit.events(self.campaign_id)]
        last_start = max((i for i, kind in enumerate(kinds) if kind in (events.STARTED, events.RESUMED)), default=-1)
        return events.STOP_REQUESTED in kinds[max(last_start, 0) :]

    def supervisor(self) -> ProcessId | None:
        """Return the process that last took the campaign."""
        bodies = self._bodies(events.STARTED) + self._bodies(events.RESUMED)
        if not bodies:
            return None
        return _made(ProcessId, self.campaign_id, bodies[-1])

    def comes_up(self) -> bool:
        """Tell whether the campaign was opened a moment ago and may still get its first supervisor."""
        if self.supervisor() is not None or self._bodies(events.START_FAILED):
            return False
        return _is_new(self.storage, self._audit.campaign(self.campaign_id)["created_at"])

    def trials(self) -> tuple[Trial, ...]:
        """Return the finished trials, decoded from the records, oldest first."""
        found = []
        for row in self._audit.trials(self.campaign_id):
            if row["ended_at"] is not None:
                request, result = self._trial_documents(row["trial_id"])
                found.append(Trial(TrialRequest.from_json(request), TrialResult.from_json(result)))
        return tuple(found)

    def unfinished(self) -> list[TrialRequest]:
        """Return the requests of trials that were started and have no end on record."""
        rows = self._audit.trials(self.campaign_id)
        open_ids = {row["trial_id"] for row in rows if row["ended_at"] is None}
        requests = (TrialRequest.from_json(text) for text in self._audit.records(self.campaign_id, TrialRequest.KIND))
        return [one for one in requests if one.trial_id in open_ids]

    def next_number(self) -> int:
        """Return the number of the next trial, from 1."""
        return len(self._audit.trials(self.campaign_id)) + 1

    def start_trial(self, request: TrialRequest, number: int) -> None:
        """Put a request and its start on record."""
        row = {
            "trial_id": request.trial_id,
            "campaign_id": self.campaign_id,
            "seq": number,
            "role": request.role,
            "proposal_id": request.proposal_id,
            "run_id": request.run_id,
            "request_digest": request.digest,
            "started_at": self.storage.clock(),
        }
        body = {
            "trial_id": request.trial_id,
            "number": number,
            "role": request.role,
            "proposal_id": request.proposal_id,
            "max_steps": request.max_steps,
            "timeout_seconds": request.timeout_seconds,
        }
        self._audit.start_trial(row, (request.digest, request.KIND, request.to_json()), body)

    def end_trial(self, request: TrialRequest, result: TrialResult) -> None:
        """Put a result and its end on record."""
        peak = None if result.peak is None else result.peak.compared_bytes
        shown = {
            "outcome": result.outcome,
            "sentence": result.sentence,
            "steps": result.progress.steps,
            "peak_bytes": peak,
            "wall_seconds": result.wall_seconds,
        }
        row = {
            "trial_id": result.trial_id,
            "result_digest": result.digest,
            "gpu_seconds": result.gpu_seconds,
            "ended_at": self.storage.clock(),
            **shown,
        }
        body = {"trial_id": result.trial_id, "role": request.role, "proposal_id": request.proposal_id, **shown}
        self._audit.end_trial(self.campaign_id, row, (result.digest, result.KIND, result.to_json()), body)

    def finish(self, chain: RecoveryChain) -> None:
        """Put ranking, verdict and chain on record and close the campaign; a verified one resolves its failure."""
        verdict = chain.verdict
        row = {
            "campaign_id": self.campaign_id,
            "digest": verdict.digest,
            "status": verdict.status,
            "reason_code": verdict.reason_code,
            "sentence": verdict.sentence,
            "candidate_id": verdict.candidate_id,
            "device_kind": verdict.device_kind,
            "at": self.storage.clock(),
        }
        body = {key: row[key] for key in ("status", "reason_code", "sentence", "candidate_id", "device_kind")}
        documents = [(one.digest, one.KIND, one.to_json()) for one in (chain.ranking, verdict, chain)]
        self._audit.end_campaign(self.campaign_id, row, documents, body, _resolves(chain))

    def chain(self) -> RecoveryChain | None:
        """Return the finished campaign's chain as it is on record, None while there is no verdict."""
        found = self._audit.records(self.campaign_id, RecoveryChain.KIND)
        return RecoveryChain.from_json(found[-1]) if found else None

    def _bodies(self, kind: str) -> list[dict[str, Any]]:
        return [event["body"] for event in self._audit.events(self.campaign_id) if event["type"] == kind]

    def _text(self, body: Mapping[str, Any], key: str) -> str:
        if not isinstance(body.get(key), str):
            raise _damaged(self.campaign_id, f"a text under {key!r}", body)
        return str(body[key])

    def _trial_documents(self, trial_id: str) -> tuple[str, str]:
        return self._audit.trial_documents(trial_id)


def earliest(trials: Iterable[Trial], authorizations: Iterable[Authorization]) -> float:
    """Return the time before which no further trial can have been started, in seconds since 1970.

    A clock that somebody sets back must not put a trial on record before those that it followed, or before its own
    approval: no verdict would come of that order.
    """
    starts = [one.result.started_at for one in trials]
    return max([*starts, *(one.approved_at for one in authorizations)], default=0.0)


def already_run(campaign_id: str) -> CampaignError:
    """Return the error that names the campaign which runs a plan already."""
    return CampaignError(
        f"campaign {campaign_id} runs this plan already",
        expected="one campaign of a plan at a time",
        remedy=f"Follow that one: `watcher recovery {campaign_id} --watch`, in a notebook `%watcher recovery"
        f" {campaign_id}`. Once it has ended or lost its supervisor, the plan can be started again.",
    )


def _is_on_its_way(storage: Storage, row: Row) -> bool:
    """Tell whether a campaign has a living supervisor, or was opened a moment ago and is about to get one."""
    if row["type"] is None:
        return _is_new(storage, row["created_at"])
    return _has_supervisor(storage, row)


def _is_new(storage: Storage, created_at: float) -> bool:
    return abs(storage.clock() - created_at) < _STARTING_SECONDS


def _has_supervisor(storage: Storage, row: Row) -> bool:
    if row["type"] not in (events.STARTED, events.RESUMED):
        return False
    try:
        event = sound("events", {"campaign_id": row["campaign_id"], "body": row["body"]})
        return bool(storage.alive(_made(ProcessId, event["campaign_id"], event["body"])))
    except DamagedRow:
        return False  # a campaign whose events are damaged keeps no other from starting


def _made(kind: Callable[..., T], campaign_id: str, body: Mapping[str, Any]) -> T:
    """Return what an event's body holds the parts of."""
    try:
        made = kind(**body)
        if isinstance(made, ProcessId):
            ProcessId(int(made.pid), float(made.started), made.boot_id)
        return made
    except (TypeError, ValueError):
        raise _damaged(campaign_id, f"the parts of {getattr(kind, '__name__', kind)}", body) from None


def _damaged(campaign_id: str, expected: str, body: Mapping[str, Any]) -> DamagedRow:
    return damaged("events", campaign_id, "body", expected, json.dumps(body)[:200])


def _resolves(chain: RecoveryChain) -> tuple[str, str, str] | None:
    """Return the run whose failure a verified campaign resolves, by whom, and the note; None for any other campaign."""
    verdict = chain.verdict
    if verdict.status != "verified" or verdict.candidate_id is None:
        return None
    changes, device = chain.plan.proposal(verdict.candidate_id).words, chain.plan.contract.device.words
    note = f"A recovery was verified on {device} by campaign {chain.campaign_id}: {changes}"
    return chain.plan.source.run_id, "watcherml", note[:2000]
