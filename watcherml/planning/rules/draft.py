"""``Draft``: a proposal before it is ordered, permitted and sealed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from watcherml.errors import InvalidValue
from watcherml.planning.spelling import spelled
from watcherml.planning.wording import brief, cut, shown
from watcherml.protocol.plan import AUTHORITIES, RISKS, Skipped, Source
from watcherml.protocol.proposal import Authority, Capability, Change, EffectiveBatch, Risk
from watcherml.sealed.canonical import canonical_bytes
from watcherml.sealed.device import DeviceKind
from watcherml.sealed.record import thaw


@dataclass(frozen=True)
class Situation:
    """What a rule looks at: the controls that may be changed, by name, the failed run, and the kind of its device.

    ``micro_batches`` are sizes that the ladder of micro-batches gets besides its own.
    """

    found: Mapping[str, Capability]
    source: Source
    device_kind: DeviceKind
    micro_batches: tuple[int, ...] = ()

    def supported(self, capability: str) -> bool:
        """Tell whether the diagnosis found a cause that the control acts on."""
        return capability in self.source.supports


@dataclass(frozen=True)
class Draft:
    """What a rule suggests.

    ``tier`` orders drafts: the gentlest change of each family first, combinations later. ``least_authority`` and
    ``changes_update`` say what the change itself needs beyond its controls.
    """

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
    environment: Mapping[str, str] = field(default_factory=dict)
    least_authority: Authority = "automatic"
    changes_update: bool = False

    @property
    def authority(self) -> Authority:
        """The strictest authority of the controls it changes, and of the change itself."""
        return max((self.least_authority, *(one.authority for one in self.capabilities)), key=AUTHORITIES.index)

    @property
    def risk(self) -> Risk:
        """The highest risk of the controls it changes."""
        return max((one.risk for one in self.capabilities), key=RISKS.index)

    @property
    def semantic(self) -> bool:
        """Whether the change, or any of its controls, computes something else."""
        return self.changes_update or any(one.semantic for one in self.capabilities)


Drafts = tuple[list[Draft], list[Skipped]]


def change(capability: Capability, after: Any) -> Change:
    """Return the change of one control to a new canonical value, written as the configuration writes it.

    Raises ``InvalidValue`` where its key cannot say that value.
    """
    raw = spelled(capability, after)
    if raw is None:
        raise InvalidValue(
            f"config.{shown(capability.path)}",
            expected=f"a key that can say {brief(after)}",
            got=brief(thaw(capability.value)),
        )
    meaning = None if canonical_bytes(raw) == canonical_bytes(after) else after
    return Change(capability.name, capability.path, thaw(capability.value), raw, meaning)


def left_out(capability: str, reason: str) -> Drafts:
    """Return no draft and the reason."""
    return [], [Skipped(capability, cut(reason))]


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
        least_authority=max(first.least_authority, second.least_authority, key=AUTHORITIES.index),
        changes_update=first.changes_update or second.changes_update,
    )
