"""One person's approval of one proposal of one plan, and what a caller hands over as approvals and rejections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from watcherml.errors import InvalidValue, NotAuthorized
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


def approvals_given(approvals: Any) -> tuple[Authorization, ...]:
    """Return the approvals of a mapping by proposal, of an iterable, or the one that it is.

    Raises ``InvalidValue`` for anything else, ``NotAuthorized`` for one that stands under another proposal's id.
    """
    named = approvals if isinstance(approvals, Mapping) else None
    found = approvals if named is None else named.values()
    single = isinstance(found, (Authorization, str)) or not isinstance(found, Iterable)
    given = (found,) if single else tuple(found)
    for one in given:
        if not isinstance(one, Authorization):
            raise InvalidValue(
                "authorizations",
                expected="approvals, by their proposal or in a list",
                got=f"{one!r:.80} ({type(one).__name__})",
                remedy="preparation.authorize(PROPOSAL_ID, approved_by=NAME, reason=TEXT) makes one.",
            )
    for proposal_id, one in (named or {}).items():
        if one.proposal_id != proposal_id:
            expected = f"an approval of {proposal_id}"
            raise NotAuthorized(f"authorizations[{proposal_id!r}]", expected=expected, got=f"one of {one.proposal_id}")
    return given


def rejections_given(rejections: Any) -> Mapping[str, tuple[str, str]]:
    """Return (who, why) by proposal; ``InvalidValue`` for what does not say both."""
    told = {} if rejections is None else rejections
    if not isinstance(told, Mapping):
        raise InvalidValue("rejections", expected="(who, why) by proposal", got=f"{told!r:.80} ({type(told).__name__})")
    for proposal_id, one in told.items():
        if not (isinstance(one, (tuple, list)) and len(one) == 2 and all(isinstance(text, str) for text in one)):
            where = f"rejections[{proposal_id!r}]"[:200]
            raise InvalidValue(where, expected="(who, why), two texts", got=f"{one!r:.80} ({type(one).__name__})")
    return told
