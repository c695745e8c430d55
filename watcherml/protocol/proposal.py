"""``Proposal``: one bounded change of the configuration that has not run yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from watcherml.errors import BindingError, InvalidValue
from watcherml.sealed.canonical import canonical_bytes, digest
from watcherml.sealed.fields import ByteCount, Digest, Items, Json, Later, Line, Name, ProposalId, Text
from watcherml.sealed.record import Record, thaw

Authority = Literal["automatic", "approval_required"]
Risk = Literal["low", "medium", "high"]
# What a change does to the number of samples behind one optimizer step.
EffectiveBatch = Literal["preserved", "changed", "untouched"]
# What makes accumulation over smaller micro-batches another update than one large batch.
UpdateTrait = Literal["batch_norm", "in_batch_negatives", "mean_of_means"]

# Those of them that compute something else; a mean of means only weighs differently.
SEMANTIC_TRAITS: tuple[UpdateTrait, ...] = ("batch_norm", "in_batch_negatives")

ALLOCATOR = "allocator_configuration"
# The one setting that a trial's environment may get, under the documented name and the older one: some torch
# releases read only one of the two.
ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_Variable = Annotated[str, Text(1, 64, r"PYTORCH_(CUDA_)?ALLOC_CONF", "one of " + ", ".join(ALLOCATOR_VARIABLES))]
_Setting = Annotated[str, Text(1, 400, r"[A-Za-z0-9_.,:;\[\]>= -]+", "an allocator setting of 1 to 400 characters")]
Environment = Annotated[Mapping[_Variable, _Setting], Items(0, len(ALLOCATOR_VARIABLES))]


def config_digest(config: Any) -> str:
    """Return the digest that names a configuration everywhere."""
    return digest("config", 1, config)


@dataclass(frozen=True, slots=True, eq=False)
class Capability(Record):
    """A typed control found in a configuration.

    ``path`` leads to the value through nested mappings. ``source`` says how it was found: ``alias``, ``declared``, or
    ``environment`` for the allocator's variable, whose path is the variable's name and which no configuration holds.
    ``authority``, ``risk`` and ``semantic`` may have been tightened by a declaration, never loosened.
    """

    name: Name
    path: Annotated[tuple[str, ...], Items(1, 16)]
    value: Json
    authority: Authority
    risk: Risk
    semantic: bool
    source: Literal["alias", "declared", "environment"] = "alias"


@dataclass(frozen=True, slots=True, eq=False)
class Change(Record):
    """One value of the configuration before and after.

    ``meaning`` is what ``after`` says in the vocabulary of its capability ("bf16" for "bf16-mixed", 8 for a switch of
    8-bit state); None where ``after`` says it itself.
    """

    capability: Name
    path: Annotated[tuple[str, ...], Items(1, 16)]
    before: Json
    after: Json
    meaning: Annotated[Json, Later()] = None

    @property
    def wanted(self) -> Any:
        """The value to look for in a process that runs with the change."""
        return thaw(self.after if self.meaning is None else self.meaning)

    @property
    def words(self) -> str:
        """The change as ``path: before -> after``."""
        path = ".".join(self.path)
        path = path if len(path) <= 80 else f"{path[:39]}…{path[-40:]}"
        return f"{path}: {_short(self.before)} → {_short(self.after)}"


@dataclass(frozen=True, slots=True, eq=False)
class Proposal(Record):
    """A candidate: its changes, what they are expected to do, who may let it run.

    ``predicted_peak_bytes`` is a prediction in bytes on the contract's device, None where nobody could make
    one; it orders candidates and is never evidence. ``config_digest`` binds the whole candidate configuration.
    ``environment`` holds the allocator's variables for the trial's process.
    """

    KIND: ClassVar[str] = "recovery-proposal"

    proposal_id: ProposalId
    title: Line
    changes: Annotated[tuple[Change, ...], Items(0, 16)]
    environment: Environment
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

    def check(self) -> None:
        """Something changes, each value once, and both allocator variables say the same."""
        where = f"Proposal {self.proposal_id}"
        if not self.changes and not self.environment:
            raise InvalidValue(f"{where}.changes", expected="at least one change", got="none")
        paths = [change.path for change in self.changes]
        if len(set(paths)) != len(paths):
            raise InvalidValue(f"{where}.changes", expected="each path once", got=str(max(paths, key=paths.count)))
        for change in self.changes:
            if canonical_bytes(change.before) == canonical_bytes(change.after):
                raise InvalidValue(f"{where}.changes", expected="another value", got=change.words)
        if self.environment and (set(self.environment) != set(ALLOCATOR_VARIABLES) or len(self._settings) != 1):
            raise InvalidValue(f"{where}.environment", expected="one value under both names of the allocator setting",
                               got=str(dict(self.environment)))  # fmt: skip

    @property
    def _settings(self) -> set[str]:
        return set(self.environment.values())

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The names of the controls that it changes, the allocator's variables included."""
        names = [change.capability for change in self.changes]
        return tuple(dict.fromkeys([*names, *([ALLOCATOR] if self.environment else [])]))

    @property
    def words(self) -> str:
        """Every change in words, with the environment's."""
        shown = [change.words for change in self.changes]
        return "; ".join([*shown, *(f"{ALLOCATOR_VARIABLES[0]}={setting}" for setting in sorted(self._settings))])


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
