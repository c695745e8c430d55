"""Which smaller batch is the same update, and which is another one.

Accumulating over equal micro-batches gives the gradient of the large batch only if the loss is a mean over samples
that do not see each other. Three things break that, each measured on small models: BatchNorm (statistics of the
micro-batch), negatives taken from the batch, and a mean of means where samples count unequal numbers of tokens.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, get_args

from watcherml.errors import InvalidValue
from watcherml.planning.controls_declared import WORKLOAD
from watcherml.planning.traits_seen import leaves, trait_of_leaf
from watcherml.planning.wording import brief, shown, shown_value
from watcherml.protocol.plan import Trait
from watcherml.protocol.proposal import SEMANTIC_TRAITS, UpdateTrait
from watcherml.sealed.record import thaw

_NAMES: tuple[UpdateTrait, ...] = get_args(UpdateTrait)


# What each does to the update of a smaller micro-batch.
_MEANINGS: dict[UpdateTrait, str] = {
    "batch_norm": "BatchNorm normalises each micro-batch of {micro} by its own statistics",
    "in_batch_negatives": "each sample gets its negatives from a micro-batch of {micro}",
    "mean_of_means": "micro-batches with unequal numbers of counted tokens weigh the same in the accumulated mean",
}

# Said where nothing of the kind was declared or seen: what the arithmetic alone cannot promise.
SAME_UPDATE = (
    "The same update if the loss is a mean over equal micro-batches. Neither BatchNorm nor in-batch negatives were"
    " declared or seen; a trial that meets BatchNorm is not counted without approval."
)

# Larger factors of a batch are not looked for: below 10**10 that finds all, beyond it a batch has smaller ones too.
_LARGEST_TRIAL = 100_000


def divisors_down(batch: int) -> list[int]:
    """Return a ladder of exact divisors below ``batch``: each the largest that is at most half of the last.

    64 gives 32, 16, 8, 4, 2, 1; 96 gives 48, 24, 12, 6, 3, 1; a prime gives 1.
    """
    found = divisors(batch)
    rungs: list[int] = []
    current = batch
    while current > 1:
        current = found[bisect_right(found, current // 2) - 1]
        rungs.append(current)
    return rungs


def halves_down(batch: int) -> list[int]:
    """Return ``batch`` halved again and again, rounded down: what is tried where the effective batch changes anyway."""
    rungs = []
    while batch > 1:
        batch //= 2
        rungs.append(batch)
    return rungs


# Sizes that are looked at for the largest that fits, where any size will do.
_MOST_SIZES = 256


def sizes_below(batch: int) -> tuple[int, ...]:
    """Return sizes below ``batch`` in even steps, all of them up to 256, and its halves."""
    step = -(-batch // _MOST_SIZES)
    return tuple(sorted({*range(step, batch, step), *halves_down(batch)}))


def divisors(number: int) -> tuple[int, ...]:
    """Return exact divisors in order; what is left when all small factors are out counts as one prime."""
    found = [1]
    for prime in _factors(number):
        found = sorted({*found, *(one * prime for one in found)})
    return tuple(found)


def _factors(number: int) -> list[int]:
    factors = []
    rest, trial = number, 2
    while trial * trial <= rest and trial <= _LARGEST_TRIAL:
        if rest % trial:
            trial += 1 if trial == 2 else 2
        else:
            factors.append(trial)
            rest = rest // trial
    return [*factors, rest] if rest > 1 else factors


def accumulation_for(batch: int, accumulation: int, micro_batch: int) -> int:
    """Return the accumulation steps that keep ``batch * accumulation`` samples behind one optimizer step.

    ``micro_batch`` must divide ``batch`` exactly; anything else is not the same update and raises ValueError.
    """
    if batch % micro_batch:
        raise ValueError(f"{micro_batch} does not divide {batch}")
    return accumulation * (batch // micro_batch)


def traits_of(config: Mapping[str, Any], seen_modules: tuple[str, ...], declarations: Mapping[str, Any] | None) -> (
    tuple[Trait, ...]
):  # fmt: skip
    """Return what makes accumulation another update, as declared, as seen in the failed process, or in its config.

    ``seen_modules`` are class names of BatchNorm modules that the failed process held. ``declarations`` may hold
    ``{"workload": {"batch_norm": true}}``; only true is accepted, since a declaration cannot loosen. Raises
    ``InvalidValue`` naming the wrong declaration.
    """
    found: dict[UpdateTrait, Trait] = {}
    for name in declared_traits(declarations):
        found[name] = Trait(name, "declared", "declared")
    if seen_modules and "batch_norm" not in found:
        found["batch_norm"] = Trait(
            "batch_norm", "seen", f"{', '.join(sorted(seen_modules))} in the failed process"[:200]
        )
    for path, value in leaves(thaw(config)):
        name_seen = trait_of_leaf(path, value)
        if name_seen is not None and name_seen not in found:
            found[name_seen] = Trait(name_seen, "seen", f"{shown(path, 150)} is {shown_value(value)}")
    return tuple(found[name] for name in _NAMES if name in found)


def declared_traits(declarations: Mapping[str, Any] | None) -> tuple[UpdateTrait, ...]:
    """Return the traits that the declarations name; ``InvalidValue`` names a wrong one."""
    given = (declarations or {}).get(WORKLOAD, {})
    if not isinstance(given, Mapping):
        raise InvalidValue(f"capabilities.{WORKLOAD}", expected="an object", got=brief(given, 120))
    for key, value in given.items():
        if key not in _NAMES:
            word = key[:80] if isinstance(key, str) else brief(key)
            raise InvalidValue(f"capabilities.{WORKLOAD}.{word}", expected="one of " + ", ".join(_NAMES),
                               got=brief(key))  # fmt: skip
        if value is not True:
            raise InvalidValue(f"capabilities.{WORKLOAD}.{key}", expected="true", got=brief(value),
                               remedy="A declaration can only tighten; leave it out instead.")  # fmt: skip
    return tuple(name for name in _NAMES if given.get(name) is True)


def update_sentences(traits: tuple[Trait, ...], micro: int) -> tuple[str, ...]:
    """Return what a person reads beside a smaller micro-batch: one sentence a trait, or what was not seen."""
    if not traits:
        return (SAME_UPDATE,)
    return tuple(
        f"Not the same update: {_MEANINGS[trait.name].format(micro=micro)} ({trait.words})." for trait in traits
    )


def changes_update(traits: tuple[Trait, ...]) -> bool:
    """Tell whether any trait makes a smaller micro-batch compute something else, not only weigh it differently."""
    return any(trait.name in SEMANTIC_TRAITS for trait in traits)
