"""Every place of a configuration whose key could be a control, with what speaks against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from watcherml.planning.capability import BY_ALIAS, BY_NAME, Control, normalised
from watcherml.planning.controls_declared import MAX_PATH
from watcherml.planning.controls_reading import sayable
from watcherml.planning.controls_words import (
    foreign_to,
    is_foreign,
    is_like_accumulation,
    is_like_batch,
    is_other_use,
    is_part_of_batch,
    is_set,
    is_training,
    is_whole_batch,
    words_of,
)

# Keys that only DeepSpeed has: beside them, `train_batch_size` counts all devices and accumulated steps.
_DEEPSPEED = {
    "zero_optimization", "train_micro_batch_size_per_gpu", "steps_per_print", "wall_clock_breakdown",
    "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "prescale_gradients", "gradient_predivide_factor",
    "communication_data_type", "flops_profiler", "memory_breakdown",
}  # fmt: skip
_MICRO = BY_NAME["micro_batch_size"]
_ACCUMULATION = BY_NAME["gradient_accumulation_steps"]
# Keys beside which `train_batch_size` may be the whole batch of an update: some programs count it so, others do not.
_UNCLEAR_BESIDE = (
    *BY_NAME["gradient_accumulation_steps"].aliases,
    "max_prompt_length", "max_response_length", "rollout_batch_size", "n_samples_per_prompt", "gen_batch_size",
)  # fmt: skip
# The name of a micro-batch that OpenRLHF has, with `train_batch_size` for the whole.
_OPENRLHF = "micro_train_batch_size"
# A list in a list in a list ... has no keys to count; this ends the walk there.
_MAX_NESTING = 48

Kind = Literal["value", "unclear", "effective", "section", "listed", "deep", "other_use", "whole", "part", "named"]


@dataclass(frozen=True)
class Place:
    """A key of a configuration that is an alias, or that speaks of a batch.

    ``path`` leads to the value (in ``listed`` ones an index stands for a key), ``home`` to the mapping that holds
    the alias. ``kind`` is ``value`` for a candidate, else what speaks against it: ``train_batch_size`` as DeepSpeed's
    effective batch, or unclear because of the key ``beside`` it; a section, inside a list, too deep for a path, a
    section that is not about training. ``whole`` and ``part`` are no aliases: they name the batch of an update, and
    what could be a micro-batch; both are set. ``named`` is no alias either: it could be meant where nothing else is.
    """

    path: tuple[str, ...]
    home: tuple[str, ...]
    key: str
    raw: Any
    kind: Kind
    training: bool
    deepspeed: bool
    beside: str = ""


@dataclass(frozen=True)
class _Section:
    """Where the walk is, and what the sections above say."""

    path: tuple[str, ...] = ()
    nesting: int = 0
    training: bool = False
    other_use: bool = False
    listed: bool = False
    deepspeed: bool = False
    ds_section: bool = False
    opaque: frozenset[str] = frozenset()
    against: frozenset[str] = frozenset()


def find_places(config: Mapping[str, Any]) -> dict[str, list[Place]]:
    """Return the places of each control by its name, those in a training section first, then by path."""
    places: dict[str, list[Place]] = {}
    for control, place in _mapping(config, _Section()):
        places.setdefault(control.name, []).append(place)
    return {name: sorted(group, key=lambda one: (not one.training, one.path)) for name, group in places.items()}


def _mapping(config: Mapping[Any, Any], here: _Section) -> Iterator[tuple[Control, Place]]:
    keys = [key for key in config if isinstance(key, str) and sayable(key)]
    names = {normalised(key) for key in keys}
    deepspeed = here.ds_section or bool(_DEEPSPEED & names)
    here = replace(here, deepspeed=here.deepspeed or deepspeed)
    for key in keys:
        control = BY_ALIAS.get(normalised(key))
        opaque = here.opaque
        if control is not None and control.name not in opaque:
            yield control, _judged(_place(control, key, config[key], here), names, deepspeed)
            # A section under an alias speaks for the whole: what it holds is no second candidate.
            opaque = opaque | {control.name}
        elif control is None:
            yield from _of_a_batch(key, config[key], here)
        yield from _below(key, config[key], replace(here, opaque=opaque))


def _below(key: str, item: Any, here: _Section) -> Iterator[tuple[Control, Place]]:
    if here.nesting >= _MAX_NESTING:
        return
    name = normalised(key)
    words = words_of(name)
    training, other_use = is_training(words), is_other_use(words) and name not in BY_ALIAS
    inner = replace(
        here,
        path=(*here.path, key),
        nesting=here.nesting + 1,
        training=here.training or (training and not other_use),
        other_use=here.other_use or (other_use and not training),
        ds_section=here.ds_section or bool(words & {"deepspeed", "ds"}),
        against=here.against | foreign_to(words),
    )
    if isinstance(item, Mapping):
        yield from _mapping(item, inner)
    elif isinstance(item, (list, tuple)):
        for index, one in enumerate(item):
            yield from _below(f"[{index}]", one, replace(inner, listed=True))


def _place(control: Control, key: str, item: Any, here: _Section) -> Place:
    alias = normalised(key)
    path, raw, section = (*here.path, key), item, isinstance(item, Mapping)
    if isinstance(item, Mapping):
        leaf = _leaf(item, control.reading.leaves(alias))
        if leaf is not None:
            path, raw, section = (*path, leaf), item[leaf], False
    kind: Kind = "value"
    if here.other_use or is_foreign(control.name, here.against):
        kind = "other_use"
    elif here.listed:
        kind = "listed"
    elif len(path) > MAX_PATH:
        kind = "deep"
    elif section:
        kind = "section"
    return Place(path, here.path, alias, raw, kind, here.training, here.deepspeed)


def _judged(place: Place, names: set[str], deepspeed: bool) -> Place:
    """Return ``train_batch_size`` as what the keys beside it make of it, and any other place as it is."""
    if place.key != "train_batch_size" or place.kind != "value":
        return place
    if deepspeed or _OPENRLHF in names:
        return replace(place, kind="effective")
    beside = next((key for key in _UNCLEAR_BESIDE if key in names), "")
    return replace(place, kind="unclear", beside=beside) if beside else place


def _of_a_batch(key: str, item: Any, here: _Section) -> Iterator[tuple[Control, Place]]:
    name = normalised(key)
    usable = not here.other_use and not is_foreign(_MICRO.name, here.against) and is_set(item)
    if usable and is_whole_batch(name):
        yield _MICRO, Place((*here.path, key), here.path, name, item, "whole", here.training, here.deepspeed)
    elif usable and is_part_of_batch(name) and not here.listed and not isinstance(item, (Mapping, list, tuple)):
        yield _MICRO, Place((*here.path, key), here.path, name, item, "part", here.training, here.deepspeed)
    elif usable and not here.listed and _is_count(item):
        like = _MICRO if is_like_batch(name) else _ACCUMULATION if is_like_accumulation(name) else None
        if like is not None:
            yield like, Place((*here.path, key), here.path, name, item, "named", here.training, here.deepspeed)


def _is_count(raw: Any) -> bool:
    return raw.strip().isdecimal() if isinstance(raw, str) else isinstance(raw, int) and not isinstance(raw, bool)


def _leaf(section: Mapping[Any, Any], leaves: tuple[str, ...]) -> str | None:
    """Return the key that stands for a section: the only one of the first leaf that it has, with a plain value."""
    for leaf in leaves:
        keys = [key for key in section if isinstance(key, str) and normalised(key) == leaf]
        if keys:
            plain = not isinstance(section[keys[0]], (Mapping, list, tuple))
            return keys[0] if len(keys) == 1 and plain else None
    return None
