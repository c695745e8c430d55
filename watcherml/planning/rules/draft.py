"""``Draft``: a proposal before it is ordered, permitted and sealed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from watcherml.protocol.proposal import Authority, Capability, Change, EffectiveBatch, Risk
from watcherml.sealed.record import thaw

_RISKS: tuple[Risk, ...] = ("low", "medium", "high")
_AUTHORITIES: tuple[Authority, ...] = ("automatic", "approval_required")


@dataclass(frozen=True)
class Draft:
    """What a rule suggests. ``tier`` orders drafts: the gentlest change of each family first, combinations later."""

    slug: str
    title: str
    changes: tuple[Change, ...]
    capabilities: tuple[Capability, ...]
    effective_batch: EffectiveBatch
    rule: str
    evidence_ids: tuple[str, ...]
    expected_effect: str
    cautions: tuple[str, ...]
    tier: float

    @property
    def authority(self) -> Authority:
        """The strictest authority of the controls it changes."""
        return max((one.authority for one in self.capabilities), key=_AUTHORITIES.index)

    @property
    def risk(self) -> Risk:
        """The highest risk of the controls it changes."""
        return max((one.risk for one in self.capabilities), key=_RISKS.index)

    @property
    def semantic(self) -> bool:
        """Whether any of its controls changes what is computed."""
        return any(one.semantic for one in self.capabilities)


Found = Mapping[str, Capability]


def change(capability: Capability, after: Any) -> Change:
    """Return the change of one control to a new value."""
    return Change(capability.name, capability.path, thaw(capability.value), after)


def combine(first: Draft, second: Draft, tier: float) -> Draft:
    """Return both drafts as one."""
    return Draft(
        slug=f"{first.slug}+{second.slug}",
        title=f"{first.title}, and {second.title[0].lower()}{second.title[1:]}",
        changes=first.changes + second.changes,
        capabilities=first.capabilities + second.capabilities,
        effective_batch=first.effective_batch,
        rule="combined",
        evidence_ids=tuple(dict.fromkeys(first.evidence_ids + second.evidence_ids)),
        expected_effect="Both effects together.",
        cautions=tuple(dict.fromkeys(first.cautions + second.cautions)),
        tier=tier,
    )
