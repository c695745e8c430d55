"""``RecoveryPlan``: the contract, the source it was made for, and the proposals. Zero compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from watcherml.contract import limits
from watcherml.contract.contract import RecoveryContract
from watcherml.errors import BindingError, InvalidValue, NotFound
from watcherml.protocol.proposal import Capability, Proposal, apply_changes, config_digest
from watcherml.sealed.fields import Bound, ByteCount, Digest, Identity, Items, Json, Line, Name, RunId, Steps
from watcherml.sealed.record import Record


@dataclass(frozen=True, slots=True, eq=False)
class Source(Record):
    """What the plan needs to know of the failed run.

    ``last_step`` is the last optimizer step that was seen (None: none), ``logging_gap`` the largest distance in
    steps between two logged points; the control trial has to run past both. ``requested_bytes`` is the size
    that could not be allocated. ``supports`` names the capabilities that act on a cause the diagnosis found.
    """

    run_id: RunId
    project: Name
    config: Json
    capsule_digest: Digest
    failure_class: Name
    last_step: Steps | None
    logging_gap: Steps
    requested_bytes: ByteCount | None
    phase: Line
    dataset_fingerprint: Identity | None
    supports: tuple[Name, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Skipped(Record):
    """An intervention that was considered and left out, with the reason a person reads."""

    capability: Name
    reason: Line


@dataclass(frozen=True, slots=True, eq=False)
class RecoveryPlan(Record):
    """A sealed plan. Every later value names its digest; it runs only in the store that made it."""

    KIND: ClassVar[str] = "recovery-plan"

    contract: RecoveryContract
    source: Source
    capabilities: tuple[Capability, ...]
    proposals: Annotated[tuple[Proposal, ...], Items(0, limits.MAX_PROPOSALS)]
    skipped: tuple[Skipped, ...]
    control_max_steps: Annotated[int, Bound(1, 10**12, "steps")]
    notes: tuple[Line, ...]
    planner_version: Annotated[int, Bound(1, 10_000)]

    def check(self) -> None:
        """Contract, source and proposals name each other."""
        contract, source = self.contract, self.source
        pairs = (
            ("source_run_id", contract.source_run_id, source.run_id),
            ("source_capsule_digest", contract.source_capsule_digest, source.capsule_digest),
            ("source_failure_class", contract.source_failure_class, source.failure_class),
            ("source_config_digest", contract.source_config_digest, config_digest(source.config)),
        )
        for field, sealed, found in pairs:
            if sealed != found:
                raise InvalidValue(f"RecoveryPlan.contract.{field}", expected=found, got=sealed)
        ids = [proposal.proposal_id for proposal in self.proposals]
        if len(set(ids)) != len(ids):
            raise InvalidValue("RecoveryPlan.proposals", expected="unique proposal ids", got=", ".join(ids)[:200])
        for proposal in self.proposals:
            self._check_proposal(proposal)

    def _check_proposal(self, proposal: Proposal) -> None:
        where = f"RecoveryPlan.proposals.{proposal.proposal_id}"
        try:
            made = config_digest(apply_changes(self.source.config, proposal.changes))
        except BindingError as error:
            raise InvalidValue(f"{where}.{error.message}", expected=error.expected, got=error.got) from None
        if made != proposal.config_digest:
            raise InvalidValue(f"{where}.config_digest", expected=made, got=proposal.config_digest)
        permissions = self.contract.permissions
        missing = permissions.missing_for(
            approval=proposal.authority == "approval_required",
            semantic=proposal.semantic,
            high_risk=proposal.risk == "high",
        )
        if missing:
            raise InvalidValue(where, expected=f"the permission {missing}", got="a contract without it")

    def proposal(self, proposal_id: str) -> Proposal:
        """Return a proposal by id; ``NotFound`` names the ids there are."""
        for proposal in self.proposals:
            if proposal.proposal_id == proposal_id:
                return proposal
        known = ", ".join(proposal.proposal_id for proposal in self.proposals) or "none"
        raise NotFound(f"no proposal {proposal_id[:100]!r} in this plan", expected=f"one of: {known}")

    def candidate_config(self, proposal_id: str) -> dict[str, Any]:
        """Return the whole configuration that a proposal would run with."""
        return apply_changes(self.source.config, self.proposal(proposal_id).changes)
