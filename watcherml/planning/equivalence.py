"""Which smaller batch is the same update, and which is another one.

Accumulating over equal micro-batches gives the gradient of the large batch only if the loss is a mean over samples
that do not see each other. Three things break that, each measured on small models: BatchNorm (statistics of the
micro-batch), negatives taken from the batch, and a mean of means where samples count unequal numbers of tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from watcherml.errors import InvalidValue
from watcherml.protocol.plan import Trait
from watcherml.protocol.proposal import SEMANTIC_TRAITS, UpdateTrait
from watcherml.sealed.record import thaw

DECLARATION = "workload"
_MAX_DEPTH = 8
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

_BATCH_NORM_KEY = re.compile(r"(^|_)(batch_?norm(1d|2d|3d)?|bn|sync_?bn|sync_?batch_?norm)($|_)")
_BATCH_NORM_VALUE = re.compile(r"^(torch\.nn\.)?(sync_?)?(batch_?norm)(1d|2d|3d)?$|^bn(1d|2d|3d)?$")
# Families of torchvision and timm that are built with BatchNorm unless somebody replaces it.
_BATCH_NORM_MODEL = re.compile(
    r"(^|[/_.-])((wide_?|se_?)?res(net|next)[-_]?\d*|densenet|mobilenet|efficientnet|inception|googlenet|shufflenet|mnasnet"
    r"|regnet|vgg\d+_bn)"
)
_NEGATIVES = re.compile(
    r"info_?nce|nt_?xent|simclr|clip_?loss|^clip$|siglip|multiple_?negatives|in_?batch|contrastive|supcon"
)
_MODEL_KEYS = ("model", "name", "arch", "architecture", "backbone", "encoder", "model_name", "model_name_or_path")
_UNEVEN_KEYS = {
    "ignore_index": (int,),
    "label_pad_token_id": (int,),
    "mask_prompt": (bool,),
    "completion_only_loss": (bool,),
    "assistant_only_loss": (bool,),
}


def divisors_down(batch: int) -> list[int]:
    """Return a ladder of exact divisors below ``batch``: each the largest that is at most half of the last.

    64 gives 32, 16, 8, 4, 2, 1; 96 gives 48, 24, 12, 6, 3, 1; a prime gives 1.
    """
    divisors = _divisors(batch)
    rungs: list[int] = []
    current = batch
    while current > 1:
        current = max(size for size in divisors if size <= current // 2)
        rungs.append(current)
    return rungs


def _divisors(number: int) -> list[int]:
    small = [size for size in range(1, int(number**0.5) + 1) if number % size == 0]
    return sorted({*small, *(number // size for size in small)})


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
    for path, value in _leaves(thaw(config), ()):
        name_seen = _trait_of_leaf(path[-1].lower().replace("-", "_"), value)
        if name_seen is not None and name_seen not in found:
            found[name_seen] = Trait(name_seen, "seen", f"{'.'.join(path)[:120]} is {value!r:.60}")
    return tuple(found[name] for name in _NAMES if name in found)


def declared_traits(declarations: Mapping[str, Any] | None) -> tuple[UpdateTrait, ...]:
    """Return the traits that the declarations name; ``InvalidValue`` names a wrong one."""
    given = (declarations or {}).get(DECLARATION, {})
    if not isinstance(given, Mapping):
        raise InvalidValue(f"capabilities.{DECLARATION}", expected="an object", got=repr(given)[:120])
    for key, value in given.items():
        if key not in _NAMES:
            raise InvalidValue(f"capabilities.{DECLARATION}.{key}"[:200], expected="one of " + ", ".join(_NAMES),
                               got=repr(key)[:80])  # fmt: skip
        if value is not True:
            raise InvalidValue(f"capabilities.{DECLARATION}.{key}", expected="true", got=repr(value)[:80],
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


def _trait_of_leaf(key: str, value: Any) -> UpdateTrait | None:
    word = value.lower().replace("-", "_") if isinstance(value, str) else ""
    if _BATCH_NORM_KEY.search(key) and value not in (False, None, 0, "", "false", "none", "no", "off"):
        return "batch_norm"
    if _BATCH_NORM_VALUE.match(word) or (key in _MODEL_KEYS and _BATCH_NORM_MODEL.search(word)):
        return "batch_norm"
    if ("loss" in key or "criterion" in key or key == "objective") and word and _NEGATIVES.search(word):
        return "in_batch_negatives"
    if key in ("in_batch_negatives", "use_in_batch_negatives") and value is True:
        return "in_batch_negatives"
    kinds = _UNEVEN_KEYS.get(key)
    if kinds is not None and type(value) in kinds and value is not False:
        return "mean_of_means"
    return "mean_of_means" if key == "train_on_inputs" and value is False else None


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict) and len(path) < _MAX_DEPTH:
        for key in sorted(value):
            yield from _leaves(value[key], (*path, key))
    elif path and not isinstance(value, (dict, list)):
        yield path, value
