"""``RecoveryPlan``: the contract, the source it was made for, and the proposals. Zero compute."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from watcherml.contract import limits
from watcherml.contract.contract import RecoveryContract
from watcherml.errors import BindingError, InvalidValue, NotFound
from watcherml.protocol.permitting import permitting
from watcherml.protocol.proposal import (
    ALLOCATOR,
    Authority,
    Capability,
    Proposal,
    Risk,
    UpdateTrait,
    apply_changes,
    config_digest,
)
from watcherml.sealed.canonical import canonical_bytes
from watcherml.sealed.fields import (
    Bound,
    ByteCount,
    Digest,
    FloatPaths,
    Identity,
    Items,
    Json,
    Later,
    Line,
    Name,
    RunId,
    Steps,
)
from watcherml.sealed.floats import restore_floats
from watcherml.sealed.record import Record, thaw
from watcherml.sealed.shown import Shown

AUTHORITIES: tuple[Authority, ...] = ("automatic", "approval_required")
RISKS: tuple[Risk, ...] = ("low", "medium", "high")
# Why a control is left out of whose names the configuration has none.
NOT_THERE = "The configuration has no such control."
_MOST_STEPS = 10**12  # as the field type has it
# What a step leaves behind grows at most as these do.
_LEAVES_BEHIND = ("micro_batch_size", "gradient_accumulation_steps", "sequence_length")


@dataclass(frozen=True, slots=True, eq=False)
class RuledOut(Record):
    """A control that a diagnosed cause rules out, with the cause's id and the sentence a person reads."""

    capability: Name
    cause: Name
    sentence: Line


@dataclass(frozen=True, slots=True, eq=False)
class Trait(Record):
    """Something in the training that accumulation does not keep: who said so, and what was seen or declared."""

    name: UpdateTrait
    known_by: Literal["declared", "seen"]
    words: Line


@dataclass(frozen=True, slots=True, eq=False)
class Refusing(Record):
    """A cause for which every change is refused, with its sentence, and whether a person insisted all the same."""

    cause: Name
    name: Name
    sentence: Line
    insisted: bool = False

    @property
    def words(self) -> str:
        """The cause as ``C10 (leak across steps)``."""
        return f"{self.cause} ({self.name})"


@dataclass(frozen=True, slots=True, eq=False)
class Source(Record):
    """What the plan needs to know of the failed run. None is always "not known", never zero or "none".

    ``last_step`` is the last optimizer step that was seen, ``logging_gap`` the largest distance in steps between two
    logged points; the control trial has to run past both. Bytes: ``requested_bytes`` could not be allocated,
    ``shortfall_bytes`` were missing, ``slack_bytes`` were reserved by the allocator and unused. ``half_precision``
    lists what the device computes natively, best first; ``float_paths`` are the JSON Pointers of the configuration's
    whole numbers that are floats (see ``sealed.floats``); ``allocator`` is the setting that was in the environment.
    ``supports`` names the controls that act on a cause the diagnosis found, ``ruled_out`` those that cannot help.
    ``control_only`` is the sentence of a cause that lies outside the configuration: only the unchanged one is tried.
    ``refused_by`` are the causes for which changes are refused; where a person insisted on each of them, changes are
    proposed and ``control_only`` is None. ``horizon_step`` is the step at which memory that piles up would fill the
    device by itself.
    """

    run_id: RunId
    project: Name
    config: Json
    float_paths: FloatPaths
    capsule_digest: Digest
    failure_class: Name
    last_step: Steps | None
    logging_gap: Steps
    requested_bytes: ByteCount | None
    shortfall_bytes: ByteCount | None
    slack_bytes: ByteCount | None
    phase: Line
    dataset_fingerprint: Identity | None
    half_precision: tuple[Literal["bf16", "fp16"], ...] | None
    allocator: Line | None
    traits: Annotated[tuple[Trait, ...], Items(0, 32)]
    supports: tuple[Name, ...]
    ruled_out: Annotated[tuple[RuledOut, ...], Items(0, 64)]
    control_only: Annotated[Line | None, Later()] = None
    refused_by: Annotated[Annotated[tuple[Refusing, ...], Items(1, 32)] | None, Later()] = None
    horizon_step: Annotated[Steps | None, Later()] = None

    def check(self) -> None:
        """The configuration is an object that a request can carry, and each cause refuses once."""
        causes = [one.cause for one in self.refused_by or ()]
        if len(set(causes)) != len(causes):
            raise InvalidValue("Source.refused_by", expected="each cause once", got=", ".join(causes)[:200])
        if self.despite and self.control_only is not None:
            raise InvalidValue("Source.control_only", expected="null where all causes are insisted on", got="text")
        if not isinstance(self.config, Mapping):
            raise InvalidValue("Source.config", expected="an object", got=type(self.config).__name__)
        size = len(canonical_bytes(self.config))
        if size > limits.MAX_CONFIG_BYTES:
            raise InvalidValue("Source.config", expected=f"at most {limits.MAX_CONFIG_BYTES} bytes", got=f"{size}")

    @property
    def despite(self) -> tuple[Refusing, ...]:
        """The causes despite which changes are tried: all that refuse, or none while one is left."""
        causes = self.refused_by or ()
        return causes if all(one.insisted for one in causes) else ()

    @property
    def still_refused_by(self) -> tuple[Refusing, ...]:
        """The causes that nobody insisted on."""
        return tuple(one for one in self.refused_by or () if not one.insisted)

    @property
    def how_to_insist(self) -> str:
        """How a person insists on changes all the same; empty where nothing is refused any more."""
        if not self.still_refused_by:
            return ""
        ids = [one.cause for one in self.refused_by or ()]
        left = ", ".join(one.cause for one in self.still_refused_by)
        first = f"{left} still refuses: insisting takes all of them. " if len(self.still_refused_by) < len(ids) else ""
        flags, python = " ".join(f"--despite {one}" for one in ids), ", ".join(f'"{one}"' for one in ids)
        return (
            f"{first}To try changes all the same: {flags} (despite=[{python}] in Python) and"
            " --allow-approval-required; a person then has to approve each of them."
        )


@dataclass(frozen=True, slots=True, eq=False)
class Skipped(Record):
    """An intervention that was considered and left out, with the reason a person reads.

    ``permissions`` names what was not given, where that alone keeps it out; one that was given changes nothing else.
    """

    capability: Name
    reason: Line
    permissions: Annotated[tuple[Name, ...] | None, Later()] = None

    @property
    def declarable(self) -> bool:
        """Whether a key was found that a declaration may name; the reason then says which, and how."""
        return "declare" in self.reason.lower()


@dataclass(frozen=True, slots=True, eq=False)
class RecoveryPlan(Shown, Record):
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
        steps = control_steps(self.source, self.contract.verification.minimum_progress_steps)
        if self.control_max_steps != steps:
            got = str(self.control_max_steps)
            raise InvalidValue("RecoveryPlan.control_max_steps", expected=str(steps), got=got)
        if self.source.control_only and self.proposals:
            raise InvalidValue(
                "RecoveryPlan.proposals", expected="none: only the control is tried", got=", ".join(ids)[:200]
            )
        if self.source.still_refused_by and self.proposals:
            expected = "none: " + ", ".join(one.words for one in self.source.still_refused_by)[:300] + " refuses"
            raise InvalidValue("RecoveryPlan.proposals", expected=expected, got=", ".join(ids)[:200])
        self._check_capabilities()
        for proposal in self.proposals:
            self._check_proposal(proposal)
            self._check_authority(proposal)
            self._check_despite(proposal)
            self._check_batch(proposal)

    def _check_capabilities(self) -> None:
        names = [capability.name for capability in self.capabilities]
        if len(set(names)) != len(names):
            raise InvalidValue("RecoveryPlan.capabilities", expected="each name once", got=", ".join(names)[:200])
        for one in self.capabilities:
            where = f"RecoveryPlan.capabilities.{one.name}.value"
            if one.source == "environment":
                if one.name != ALLOCATOR:
                    raise InvalidValue(where, expected="a key of the configuration", got="the environment")
                continue
            found: Any = self.source.config
            for key in one.path:
                found = found.get(key) if isinstance(found, Mapping) else None
            if canonical_bytes(found) != canonical_bytes(one.value):
                raise InvalidValue(where, expected=repr(thaw(found))[:200], got=repr(thaw(one.value))[:200])

    def _check_batch(self, proposal: Proposal) -> None:
        """An effective batch is preserved only if micro-batch times accumulation stays what it was."""
        changed = {change.capability: (_number(change.before), _number(change.after)) for change in proposal.changes}
        micro, steps = changed.get("micro_batch_size"), changed.get("gradient_accumulation_steps")
        if micro is None and steps is None:
            expected: str = "untouched"
        elif micro is not None and steps is not None and micro[0] * steps[0] == micro[1] * steps[1]:
            expected = "preserved"
        else:
            expected = "changed"
        if proposal.effective_batch != expected:
            where = f"RecoveryPlan.proposals.{proposal.proposal_id}.effective_batch"
            raise InvalidValue(where, expected=expected, got=proposal.effective_batch)

    def _check_authority(self, proposal: Proposal) -> None:
        """A proposal changes only controls that were found, where they were found, and is as strict as they are."""
        where = f"RecoveryPlan.proposals.{proposal.proposal_id}"
        found = {capability.name: capability for capability in self.capabilities}
        for name in proposal.capabilities:
            if name not in found:
                raise InvalidValue(f"{where}.changes", expected="a control that was found", got=name)
        for change in proposal.changes:
            if change.path != found[change.capability].path:
                expected, got = ".".join(found[change.capability].path), ".".join(change.path)
                raise InvalidValue(f"{where}.changes.{change.capability}.path", expected=expected, got=got)
        touched = [found[name] for name in proposal.capabilities]
        authority = max((one.authority for one in touched), key=AUTHORITIES.index)
        risk = max((one.risk for one in touched), key=RISKS.index)
        if AUTHORITIES.index(proposal.authority) < AUTHORITIES.index(authority):
            raise InvalidValue(f"{where}.authority", expected=authority, got=proposal.authority)
        if RISKS.index(proposal.risk) < RISKS.index(risk):
            raise InvalidValue(f"{where}.risk", expected=risk, got=proposal.risk)
        if any(one.semantic for one in touched) and not proposal.semantic:
            raise InvalidValue(f"{where}.semantic", expected="true", got="false")

    def _check_despite(self, proposal: Proposal) -> None:
        """What is tried despite a cause is approved by a person, who was told of the cause."""
        where = f"RecoveryPlan.proposals.{proposal.proposal_id}"
        for one in self.source.despite:
            if proposal.authority != "approval_required":
                raise InvalidValue(f"{where}.authority", expected="approval_required", got=proposal.authority)
            if not any(one.words in words for words in proposal.cautions):
                got = "; ".join(proposal.cautions)[:200] or "none"
                raise InvalidValue(f"{where}.cautions", expected=f"one that names {one.words}"[:500], got=got)

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

    def left_out(self, capability: str) -> Skipped | None:
        """Return how a control of that name was left out; None if it was not."""
        return next((one for one in self.skipped if one.capability == capability), None)

    @property
    def withheld(self) -> tuple[Skipped, ...]:
        """What is left out for want of a permission, and could be planned with it."""
        return tuple(one for one in self.skipped if one.permissions)

    @property
    def runs_control_only(self) -> bool:
        """Whether the unchanged configuration is tried although nothing is proposed."""
        return bool(self.source.control_only) and self.contract.control

    def proposal(self, proposal_id: str) -> Proposal:
        """Return a proposal by id; ``NotFound`` names the ids there are."""
        for proposal in self.proposals:
            if proposal.proposal_id == proposal_id:
                return proposal
        known = ", ".join(proposal.proposal_id for proposal in self.proposals) or "none"
        raise NotFound(
            f"no proposal {proposal_id!r:.100} in this plan", expected=f"one of: {known}", remedy=self._more_to_permit()
        )

    def _more_to_permit(self) -> str:
        names = dict.fromkeys(name for one in self.withheld for name in one.permissions or ())
        return f"What was withheld can be proposed: prepare it again {permitting(names)}." if names else ""

    def horizon(self, proposal: Proposal) -> int | None:
        """Return the steps that a run has to reach before it tells anything of memory that piles up; None without.

        Fewer samples or shorter sequences leave as much less behind in a step. A change may slow the growth in other
        ways: the horizon is necessary, and no proof that nothing is left behind.
        """
        step = self.source.horizon_step
        if step is None:
            return None
        factor = 1.0
        for change in proposal.changes:
            before, after = _number(change.before), _number(change.after)
            if change.capability in _LEAVES_BEHIND and before > 0 and after > 0:
                factor *= before / after
        return math.ceil(min(step * max(1.0, factor), _MOST_STEPS))

    def candidate_config(self, proposal_id: str) -> dict[str, Any]:
        """Return the whole configuration that a proposal would run with, its floats as they were recorded."""
        made: dict[str, Any] = restore_floats(
            apply_changes(self.source.config, self.proposal(proposal_id).changes), self.source.float_paths
        )
        return made


def control_steps(source: Source, minimum_progress_steps: int) -> int:
    """Return the steps of the control trial: past the last seen step and the largest gap between two of them.

    Never fewer than a full run has to make: a run that logged nothing, or logged epochs, says little about the
    optimizer step at which it died, and a control that stops too early would pass for the wrong reason.
    """
    return max((source.last_step or 0) + source.logging_gap + 2, minimum_progress_steps)


def _number(value: Any) -> float:
    """Return a count however the configuration spells it; NaN, which equals nothing, for anything else."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
