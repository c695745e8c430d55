"""``RecoveryResult``: a finished campaign, with its verdict recomputed from its parts.

Three questions, in this order: do ranking and verdict follow from the trials, does this store have exactly this chain
with all its parts on record for this campaign, and is the failure that the plan was made for on record as the plan
tells it. A no to the first or the last is an error; the answer to the second is the result's standing.
"""

from __future__ import annotations

import os
from itertools import islice
from typing import Any, Literal

from watcherml.campaign import resume, source
from watcherml.campaign.ledger import Ledger
from watcherml.campaign.source import Disagreement
from watcherml.errors import CampaignError, NotFound, TrustError
from watcherml.protocol.result import Trial
from watcherml.protocol.verdict import RecoveryChain, Verdict
from watcherml.sealed.floats import restore_floats
from watcherml.sealed.record import Record, thaw
from watcherml.sealed.shown import Shown
from watcherml.store.storage import Storage
from watcherml.verdict.rank import rank
from watcherml.verdict.verify import VERIFIER_VERSION, verify

Standing = Literal["on_record", "unrecorded"]
ELSEWHERE = "Verified elsewhere, not by this store: "
MOST_DISAGREEMENTS = 20
_OUTCOME = ("campaign_id", "plan_digest", "status", "reason_code", "candidate_id", "config", "confirmation_run_ids",
            "device_kind", "cause_addressed")  # fmt: skip


class RecoveryResult(Shown):
    """What a campaign showed. ``verified`` is True only for a recomputed verdict that is on record here.

    ``standing`` is "on_record" only where the whole chain is the one that this store has for this campaign.
    ``verdict`` is computed from the trials that the document carries; what the document itself says is never shown.
    ``storage`` is the store that has it on record, else None.
    """

    def __init__(self, chain: RecoveryChain, standing: Standing, storage: Storage | None = None) -> None:
        self.chain = chain
        self.standing = standing
        self.storage = storage
        self._verdict = _judge(chain)

    def __repr__(self) -> str:
        claim = "" if self.standing == "on_record" else "claims "
        return f"<RecoveryResult {self.campaign_id} {self.status}: {claim}{self.reason_code}>"

    @classmethod
    def of_campaign(cls, campaign_id: str, storage: Storage) -> RecoveryResult:
        """Return the result of a campaign of a store; ``CampaignError`` while it has none."""
        storage.audit.campaign(campaign_id)
        chain = Ledger(storage, campaign_id).chain()
        if chain is None:
            comes = resume.is_under_way(storage, campaign_id)
            follow, take_up = f"Follow it: `watcher recovery {campaign_id} --watch`.", "Take it up, and it gets one."
            raise CampaignError(
                f"campaign {campaign_id} has no result yet",
                expected="a campaign that has ended",
                got=resume.sentence(storage, campaign_id),
                remedy=follow if comes else take_up,
            )
        return cls._checked(chain, storage)

    @classmethod
    def from_json(cls, text: str | bytes, *, storage: Storage | str | os.PathLike[str] | None = None) -> RecoveryResult:
        """Read a result and recompute ranking and verdict from the trials it carries.

        Raises ``InvalidRecord`` for a document that does not decode, ``TrustError`` where the recomputed verdict is
        another one, or where a chain on record tells another failure than the capsule on record. A consistent document
        that is not this store's chain of this campaign has ``standing`` "unrecorded", whatever its parts are.
        """
        where = storage if isinstance(storage, Storage) else Storage(storage)
        return cls._checked(RecoveryChain.from_json(text), where)

    @classmethod
    def _checked(cls, chain: RecoveryChain, storage: Storage) -> RecoveryResult:
        for path, expected, got in unfounded(chain):
            name = "ranking" if path.startswith("$.value.ranking") else "verdict"
            raise TrustError(
                f"the {name} in this result does not follow from its trials ({path})",
                expected=expected,
                got=got,
                remedy="The document was altered; it proves nothing.",
            )
        if not _is_on_record(chain, storage):
            return cls(chain, "unrecorded")
        for path, expected, got in source.on_record(chain.plan, storage):
            raise TrustError(
                f"this result is about another failure than the one on record ({path})",
                expected=expected,
                got=got,
                remedy="The store was altered; restore it from a copy.",
            )
        return cls(chain, "on_record", storage)

    @property
    def verdict(self) -> Verdict:
        """The verdict with its checks."""
        return self._verdict

    @property
    def campaign_id(self) -> str:
        """The campaign's id."""
        return self.chain.campaign_id

    @property
    def verified(self) -> bool:
        """True only if the verdict is verified and everything it rests on is on record in this store."""
        return self.verdict.status == "verified" and self.standing == "on_record"

    @property
    def status(self) -> str:
        """The status that this store stands for: verified, not_recovered, stopped, integration_error, or "unrecorded".

        Of a result that is not on record here nothing is known but its own claim, ``verdict.status``.
        """
        return self.verdict.status if self.standing == "on_record" else self.standing

    @property
    def reason_code(self) -> str:
        """The verdict's reason code; of an unrecorded result it is part of the claim."""
        return self.verdict.reason_code

    @property
    def sentence(self) -> str:
        """The verdict in a sentence, which says so where a verified one is not on record here."""
        claimed = self.verdict.status == "verified" and self.standing != "on_record"
        return f"{ELSEWHERE if claimed else ''}{self.verdict.sentence}"

    @property
    def device_kind(self) -> str:
        """cuda, simulated or none."""
        return self.verdict.device_kind

    @property
    def verified_candidate_id(self) -> str | None:
        """The verified proposal, None without one."""
        return self.verdict.candidate_id if self.verified else None

    @property
    def verified_run_ids(self) -> tuple[str, ...]:
        """The runs of the confirmations that verified it."""
        return self.verdict.confirmation_run_ids if self.verified else ()

    @property
    def verified_config(self) -> dict[str, Any] | None:
        """The whole verified configuration as a plain dict."""
        if not self.verified:
            return None
        config: dict[str, Any] = restore_floats(thaw(self.verdict.config), self.chain.plan.source.float_paths)
        return config

    @property
    def verified_environment(self) -> dict[str, str] | None:
        """The variables that the verified candidate's processes had beside its configuration; often empty."""
        if not self.verified or self.verdict.candidate_id is None:
            return None
        return dict(self.chain.plan.proposal(self.verdict.candidate_id).environment)

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Every trial with request and result."""
        return self.chain.trials

    def to_json(self) -> str:
        """Return the whole chain as its sealed document."""
        return self.chain.to_json()


def unfounded(chain: RecoveryChain) -> list[Disagreement]:
    """Return where a chain's ranking and verdict differ from what its trials give, at most 20 places.

    What an earlier version of the verifier wrote is held to its outcome, by the checks that it could make: its factors
    and words were others. Raises ``TrustError`` for a later version, which may have known better.
    """
    if chain.verdict.verifier_version > VERIFIER_VERSION:
        raise TrustError(
            "$.value.verdict.verifier_version: a later version of the verifier made this verdict",
            expected=f"at most {VERIFIER_VERSION}",
            got=str(chain.verdict.verifier_version),
            remedy="Check it with that version or a later one, from its clone or wheel.",
        )
    ranking = rank(chain.plan, chain.authorizations, chain.trials)
    verdict = _judge(chain)
    pairs: tuple[tuple[Any, Any, str], ...] = (
        (ranking, chain.ranking, "$.value.ranking"),
        (verdict, chain.verdict, "$.value.verdict"),
    )
    if chain.verdict.verifier_version != VERIFIER_VERSION:
        pairs = tuple(
            (getattr(verdict, name), getattr(chain.verdict, name), f"$.value.verdict.{name}") for name in _OUTCOME
        )
    found = (one for computed, carried, path in pairs for one in source.differences(computed, carried, path))
    return list(islice(found, MOST_DISAGREEMENTS))


def _judge(chain: RecoveryChain) -> Verdict:
    version = min(chain.verdict.verifier_version, VERIFIER_VERSION)
    return verify(chain.campaign_id, chain.plan, chain.authorizations, chain.trials, chain.ending, version=version)


def _is_on_record(chain: RecoveryChain, storage: Storage) -> bool:
    """Tell whether this is the chain that the store has for the campaign, made of the campaign's own parts."""
    if not storage.exists:
        return False
    ledger = Ledger(storage, chain.campaign_id)
    try:
        plan = ledger.plan()
    except NotFound:
        return False
    recorded = ledger.chain()
    if recorded is None or recorded.digest != chain.digest:
        return False
    # Two campaigns of one plan may share an approval or a ranking, whose rows then name the first of them.
    shared = (chain.plan, chain.ranking, *chain.authorizations)
    return (
        plan.digest == chain.plan.digest
        and _digests(ledger.authorizations()) == _digests(chain.authorizations)
        and _trial_digests(ledger.trials()) == _trial_digests(chain.trials)
        and chain.verdict.to_json() in storage.audit.records(chain.campaign_id, chain.verdict.KIND)
        and all(storage.audit.is_on_record(part.digest, part.KIND) for part in shared)
    )


def _digests(records: tuple[Record, ...]) -> list[str]:
    return [one.digest for one in records]


def _trial_digests(trials: tuple[Trial, ...]) -> list[tuple[str, str]]:
    return [(one.request.digest, one.result.digest) for one in trials]
