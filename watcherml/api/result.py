"""``RecoveryResult``: a finished campaign, with its verdict recomputed from its parts."""

from __future__ import annotations

import os
from typing import Any, Literal

from watcherml.campaign.ledger import Ledger
from watcherml.errors import CampaignError, TrustError
from watcherml.protocol.result import Trial
from watcherml.protocol.verdict import RecoveryChain, Verdict
from watcherml.sealed.record import thaw
from watcherml.store.storage import Storage
from watcherml.verdict.rank import rank
from watcherml.verdict.verify import verify

Standing = Literal["on_record", "unrecorded"]


class RecoveryResult:
    """What a campaign showed. ``verified`` is True only for a recomputed verdict that is on record here."""

    def __init__(self, chain: RecoveryChain, standing: Standing) -> None:
        self.chain = chain
        self.standing = standing

    def __repr__(self) -> str:
        return f"<RecoveryResult {self.campaign_id} {self.status}: {self.reason_code}>"

    @classmethod
    def of_campaign(cls, campaign_id: str, storage: Storage) -> RecoveryResult:
        """Return the result of a campaign of a store; ``CampaignError`` while it has none."""
        storage.audit.campaign(campaign_id)
        chain = Ledger(storage, campaign_id).chain()
        if chain is None:
            raise CampaignError(f"campaign {campaign_id} has no result yet")
        return cls._checked(chain, storage)

    @classmethod
    def from_json(cls, text: str | bytes, *, storage: Storage | str | os.PathLike[str] | None = None) -> RecoveryResult:
        """Read a result and recompute ranking and verdict from the trials it carries.

        Raises ``InvalidRecord`` for a document that does not decode, ``TrustError`` where the recomputed verdict is
        another one. A consistent document that this store did not make has ``standing`` "unrecorded".
        """
        where = storage if isinstance(storage, Storage) else Storage(storage)
        return cls._checked(RecoveryChain.from_json(text), where)

    @classmethod
    def _checked(cls, chain: RecoveryChain, storage: Storage) -> RecoveryResult:
        ranking = rank(chain.plan, chain.authorizations, chain.trials)
        verdict = verify(chain.campaign_id, chain.plan, chain.authorizations, chain.trials, chain.ending)
        for name, computed, carried in (("ranking", ranking, chain.ranking), ("verdict", verdict, chain.verdict)):
            if computed != carried:
                raise TrustError(
                    f"the {name} in this result does not follow from its trials",
                    expected=computed.digest,
                    got=carried.digest,
                    remedy="The document was altered; it proves nothing.",
                )
        recorded = _all_on_record(chain, storage)
        return cls(chain, "on_record" if recorded else "unrecorded")

    @property
    def verdict(self) -> Verdict:
        """The verdict with its checks."""
        return self.chain.verdict

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
        """The verdict's status: verified, not_recovered, stopped or integration_error."""
        return self.verdict.status

    @property
    def reason_code(self) -> str:
        """The verdict's reason code."""
        return self.verdict.reason_code

    @property
    def sentence(self) -> str:
        """The verdict in a sentence."""
        return self.verdict.sentence

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
        config: dict[str, Any] = thaw(self.verdict.config)
        return config

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Every trial with request and result."""
        return self.chain.trials

    def to_json(self) -> str:
        """Return the whole chain as its sealed document."""
        return self.chain.to_json()


def _all_on_record(chain: RecoveryChain, storage: Storage) -> bool:
    parts = [chain, chain.plan, chain.verdict, chain.ranking, *chain.authorizations]
    for trial in chain.trials:
        parts += [trial.request, trial.result]
    return all(storage.audit.is_on_record(part.digest, part.KIND) for part in parts)
