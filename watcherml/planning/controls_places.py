"""Every place of a configuration whose key could be a control, with what speaks against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from watcherml.planning.capability import BY_ALIAS, Control, normalised
from watcherml.planning.controls_declared import MAX_PATH
from watcherml.planning.controls_reading import sayable

# Decided by the words of a section's name; a name with words of both kinds says nothing.
_TRAINING = {"train", "training", "trainer", "fit", "pretrain", "pretraining", "finetune", "finetuning"}
_OTHER_USE = {
    "eval", "evaluate", "evaluation", "evaluator", "valid", "validate", "validation", "val", "test", "testing",
    "infer", "inference", "predict", "prediction", "generation", "serving", "benchmark",
}  # fmt: skip
# Keys that only DeepSpeed has: beside them, `train_batch_size` counts all devices and accumulated steps.
_DEEPSPEED = {
    "zero_optimization", "train_micro_batch_size_per_gpu", "steps_per_print", "wall_clock_breakdown",
    "zero_allow_untested_optimizer",
}  # fmt: skip
# A list in a list in a list ... has no keys to count; this ends the walk there.
_MAX_NESTING = 48

Kind = Literal["value", "effective", "section", "listed", "deep", "other_use"]


@dataclass(frozen=True)
class Place:
    """A key of a configuration that is an alias.

    ``path`` leads to the value (in ``listed`` ones an index stands for a key), ``home`` to the mapping that holds
    the alias. ``kind`` is ``value`` for a candidate, else what speaks against it: DeepSpeed's effective batch, a
    section, inside a list, too deep for a path, a section that is not about training.
    """

    path: tuple[str, ...]
    home: tuple[str, ...]
    key: str
    raw: Any
    kind: Kind
    training: bool
    deepspeed: bool


@dataclass(frozen=True)
class _Section:
    """Where the walk is, and what the sections above say."""

    path: tuple[str, ...] = ()
    nesting: int = 0
    training: bool = False
    other_use: bool = False
    listed: bool = False
    deepspeed: bool = False
    opaque: frozenset[str] = frozenset()


def find_places(config: Mapping[str, Any]) -> dict[str, list[Place]]:
    """Return the places of each control by its name, those in a training section first, then by path."""
    places: dict[str, list[Place]] = {}
    for control, place in _mapping(config, _Section()):
        places.setdefault(control.name, []).append(place)
    return {name: sorted(group, key=lambda one: (not one.training, one.path)) for name, group in places.items()}


def _mapping(config: Mapping[Any, Any], here: _Section) -> Iterator[tuple[Control, Place]]:
    keys = [key for key in config if isinstance(key, str) and sayable(key)]
    deepspeed = bool(_DEEPSPEED & {normalised(key) for key in keys})
    here = replace(here, deepspeed=here.deepspeed or deepspeed)
    for key in keys:
        control = BY_ALIAS.get(normalised(key))
        opaque = here.opaque
        if control is not None and control.name not in opaque:
            yield control, _place(control, key, config[key], here, deepspeed)
            # A section under an alias speaks for the whole: what it holds is no second candidate.
            opaque = opaque | {control.name}
        yield from _below(key, config[key], replace(here, opaque=opaque))


def _below(key: str, item: Any, here: _Section) -> Iterator[tuple[Control, Place]]:
    if here.nesting >= _MAX_NESTING:
        return
    words = set(normalised(key).split("_"))
    training, other_use = bool(words & _TRAINING), bool(words & _OTHER_USE)
    inner = replace(
        here,
        path=(*here.path, key),
        nesting=here.nesting + 1,
        training=here.training or (training and not other_use),
        other_use=here.other_use or (other_use and not training),
    )
    if isinstance(item, Mapping):
        yield from _mapping(item, inner)
    elif isinstance(item, (list, tuple)):
        for index, one in enumerate(item):
            yield from _below(f"[{index}]", one, replace(inner, listed=True))


def _place(control: Control, key: str, item: Any, here: _Section, deepspeed: bool) -> Place:
    alias = normalised(key)
    path, raw, section = (*here.path, key), item, isinstance(item, Mapping)
    if isinstance(item, Mapping):
        leaf = _leaf(item, control.reading.leaves(alias))
        if leaf is not None:
            path, raw, section = (*path, leaf), item[leaf], False
    kind: Kind = "value"
    if here.other_use:
        kind = "other_use"
    elif here.listed:
        kind = "listed"
    elif len(path) > MAX_PATH:
        kind = "deep"
    elif section:
        kind = "section"
    elif alias == "train_batch_size" and deepspeed:
        kind = "effective"
    return Place(path, here.path, alias, raw, kind, here.training, here.deepspeed)


def _leaf(section: Mapping[Any, Any], leaves: tuple[str, ...]) -> str | None:
    """Return the key that stands for a section: the only one of the first leaf that it has, with a plain value."""
    for leaf in leaves:
        keys = [key for key in section if isinstance(key, str) and normalised(key) == leaf]
        if keys:
            plain = not isinstance(section[keys[0]], (Mapping, list, tuple))
            return keys[0] if len(keys) == 1 and plain else None
    return None
