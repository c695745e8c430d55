"""``Verdict`` and the chain it rests on. Only ``watcherml.verdict.verify`` makes a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from watcherml.protocol.authorization import Authorization
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.ranking import Ranking
from watcherml.protocol.result import Trial
from watcherml.sealed.device import DeviceKind
from watcherml.sealed.fields import Bound, CampaignId, Digest, Items, Json, Line, Name, ProposalId, RunId
from watcherml.sealed.record import Record
from watcherml.sealed.shown import Shown

Status = Literal["verified", "not_recovered", "stopped", "integration_error"]


@dataclass(frozen=True, slots=True, eq=False)
class Check(Record):
    """One condition: what the contract required, what was observed, and whether it holds."""

    name: Name
    required: Line
    observed: Line
    outcome: Literal["pass", "fail", "missing"]


@dataclass(frozen=True, slots=True, eq=False)
class Ending(Record):
    """Why the campaign stopped running trials.

    ``decided``: the trials settle it. Anything else cut the campaign short, with ``detail`` in words.
    """

    reason: Literal[
        "decided",
        "stopped_by_user",
        "campaign_timeout",
        "gpu_seconds_exhausted",
        "supervisor_lost",
        "integration_error",
    ]
    detail: Line = ""


@dataclass(frozen=True, slots=True, eq=False)
class Verdict(Shown, Record):
    """The outcome of a campaign, with every check behind it.

    ``cause_addressed`` tells whether the verified change acts on a cause that the diagnosis found. ``verifier_version``
    names the list of checks it was made with; a later verifier judges an earlier verdict by its outcome.
    """

    KIND: ClassVar[str] = "recovery-verdict"

    campaign_id: CampaignId
    plan_digest: Digest
    status: Status
    reason_code: Name
    sentence: Line
    checks: Annotated[tuple[Check, ...], Items(0, 1_000)]
    candidate_id: ProposalId | None
    config: Json
    confirmation_run_ids: tuple[RunId, ...]
    device_kind: DeviceKind
    cause_addressed: Literal["yes", "no", "unknown"]
    verifier_version: Annotated[int, Bound(1, 10_000)]


@dataclass(frozen=True, slots=True, eq=False)
class RecoveryChain(Record):
    """Everything from the plan to the verdict: the document that a campaign leaves behind."""

    KIND: ClassVar[str] = "recovery-result"

    campaign_id: CampaignId
    plan: RecoveryPlan
    authorizations: tuple[Authorization, ...]
    trials: tuple[Trial, ...]
    ending: Ending
    ranking: Ranking
    verdict: Verdict
