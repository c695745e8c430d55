"""``Proposal``: one bounded change of the configuration that has not run yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from watcherml.errors import BindingError
from watcherml.sealed.canonical import canonical_bytes, digest
from watcherml.sealed.fields import ByteCount, Digest, Items, Json, Line, Name, ProposalId
from watcherml.sealed.record import Record, thaw

Authority = Literal["automatic", "approval_required"]
Risk = Literal["low", "medium", "high"]
# What a change does to the number of samples behind one optimizer step.
EffectiveBatch = Literal["preserved", "changed", "untouched"]


def config_digest(config: Any) -> str:
    """Return the digest that names a configuration everywhere."""
    return digest("config", 1, config)


@dataclass(frozen=True, slots=True, eq=False)
class Capability(Record):
    """A typed control found in a configuration.

    ``path`` leads to the value through nested mappings. ``source`` says how it was found: ``alias`` or
    ``declared``. ``authority`` may have been tightened by a declaration, never loosened.
    """

    name: Name
    path: Annotated[tuple[str, ...], Items(1, 16)]
    value: Json
    authority: Authority
    risk: Risk
    semantic: bool
    source: Literal["alias", "declared"] = "alias"


@dataclass(frozen=True, slots=True, eq=False)
class Change(Record):
    """One value of the configuration before and after."""

    capability: Name
    path: Annotated[tuple[str, ...], Items(1, 16)]
    before: Json
    after: Json

    @property
    def words(self) -> str:
        """The change as ``path: before -> after``."""
        return f"{'.'.join(self.path)}: {_short(self.before)} → {_short(self.after)}"


@dataclass(frozen=True, slots=True, eq=False)
class Proposal(Record):
    """A candidate: its changes, what they are expected to do, who may let it run.

    ``predicted_peak_bytes`` is a prediction in bytes on the contract's device, None where nobody could make
    one; it orders candidates and is never evidence. ``config_digest`` binds the whole candidate configuration.
    ``environment`` holds variables for the trial's process.
    """

    KIND: ClassVar[str] = "recovery-proposal"

    proposal_id: ProposalId
    title: Line
    changes: Annotated[tuple[Change, ...], Items(1, 16)]
    environment: Annotated[Mapping[str, str], Items(0, 4)]
    authority: Authority
    risk: Risk
    semantic: bool
    effective_batch: EffectiveBatch
    policy_rule: Name
    evidence_ids: tuple[Name, ...]
    expected_effect: Line
    cautions: tuple[Line, ...]
    predicted_peak_bytes: ByteCount | None
    config_digest: Digest


def apply_changes(config: Any, changes: tuple[Change, ...]) -> dict[str, Any]:
    """Return a copy of the configuration with the changes made.

    Raises ``BindingError`` naming the path where the configuration does not hold the ``before`` value: the
    proposal was made for another configuration.
    """
    result: dict[str, Any] = thaw(config)
    for change in changes:
        target: Any = result
        for key in change.path[:-1]:
            target = target.get(key) if isinstance(target, dict) else None
        where = ".".join(change.path)
        if not isinstance(target, dict) or change.path[-1] not in target:
            raise BindingError(f"config.{where}", expected=repr(thaw(change.before)), got="no such key")
        present = target[change.path[-1]]
        if canonical_bytes(present) != canonical_bytes(change.before):
            raise BindingError(f"config.{where}", expected=repr(thaw(change.before)), got=repr(present)[:80])
        target[change.path[-1]] = thaw(change.after)
    return result


def _short(value: Any) -> str:
    text = canonical_bytes(value).decode()
    return text if len(text) <= 40 else text[:37] + "..."
