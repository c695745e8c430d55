"""One person's approval of one proposal of one plan."""

from __future__ import annotations

from watcherml.errors import NotAuthorized
from watcherml.protocol.authorization import Authorization
from watcherml.protocol.plan import RecoveryPlan


def authorize(plan: RecoveryPlan, proposal_id: str, *, approved_by: str, reason: str, now: float) -> Authorization:
    """Return the approval; ``now`` in seconds since 1970.

    Raises ``NotFound`` for a proposal that is not in the plan, ``InvalidValue`` for an empty name or reason.
    """
    proposal = plan.proposal(proposal_id)
    return Authorization(plan.digest, proposal.proposal_id, proposal.digest, approved_by, reason, now)


def check_authorization(plan: RecoveryPlan, authorization: Authorization) -> None:
    """Raise ``NotAuthorized`` unless the approval is bound to this very plan and proposal."""
    proposal = plan.proposal(authorization.proposal_id)
    for field, expected, got in (
        ("plan_digest", plan.digest, authorization.plan_digest),
        ("proposal_digest", proposal.digest, authorization.proposal_digest),
    ):
        if expected != got:
            raise NotAuthorized(
                f"authorization.{field}",
                expected=expected,
                got=got,
                remedy="An approval counts for one proposal of one plan; approve it again.",
            )
