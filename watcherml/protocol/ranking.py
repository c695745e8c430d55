"""``Ranking``: the order in which eligible candidates are confirmed. An order, not a claim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from watcherml.sealed.fields import Digest, Line, ProposalId, TrialId
from watcherml.sealed.record import Record


@dataclass(frozen=True, slots=True, eq=False)
class Factor(Record):
    """One part of a ranking key, smaller first."""

    name: Line
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class Ranked(Record):
    """An eligible candidate with the key that placed it."""

    proposal_id: ProposalId
    trial_id: TrialId
    key: tuple[Factor, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Ineligible(Record):
    """A full trial that broke the contract, with each broken check in words."""

    proposal_id: ProposalId
    trial_id: TrialId
    reasons: tuple[Line, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Ranking(Record):
    """Eligible candidates, best first, and the ones that are out."""

    KIND: ClassVar[str] = "recovery-ranking"

    plan_digest: Digest
    order: tuple[Ranked, ...]
    ineligible: tuple[Ineligible, ...]
