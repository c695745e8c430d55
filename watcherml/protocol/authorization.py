"""``Authorization``: one person's approval of one exact proposal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from watcherml.sealed.fields import Digest, ProposalId, Text, Timestamp
from watcherml.sealed.record import Record


@dataclass(frozen=True, slots=True, eq=False)
class Authorization(Record):
    """Who approved what and why. Bound to a plan's and a proposal's digest; worth nothing for any other."""

    KIND: ClassVar[str] = "recovery-authorization"

    plan_digest: Digest
    proposal_id: ProposalId
    proposal_digest: Digest
    approved_by: Annotated[str, Text(1, 400, r"\s*\S[\s\S]*", "a name of 1 to 400 characters")]
    reason: Annotated[str, Text(1, 2_000, r"\s*\S[\s\S]*", "a reason of 1 to 2000 characters")]
    approved_at: Timestamp
