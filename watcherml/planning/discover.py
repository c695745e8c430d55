"""Finding controls in a configuration. What is ambiguous is refused with the declaration that settles it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from watcherml.planning.capability import CONTROLS, Control, naming_key
from watcherml.planning.controls_batch import ACCUMULATION, MICRO, accumulation_withheld
from watcherml.planning.controls_declared import MAX_PATH, Declaration, each_its_own, lookup, read_declarations
from watcherml.planning.controls_places import Kind, Place, find_places
from watcherml.planning.controls_precision import FLAG_KEYS, HALVES, STORAGE_KEYS, Half
from watcherml.planning.wording import MAX_REASON, cut, shown, shown_value
from watcherml.protocol.plan import NOT_THERE, Skipped
from watcherml.protocol.proposal import Capability

FORBIDDEN = "A declaration forbids changing it."

# An environment variable needs no key, so that its absence says nothing.
_NEEDS_NO_KEY = ("allocator_configuration",)
# What to say where no place is a candidate; the first kind that there is.
_REASONS: tuple[Kind, ...] = ("unclear", "effective", "part", "section", "listed", "deep", "named", "other_use")


def discover(
    config: Mapping[str, Any], declarations: Mapping[str, Any] | None = None, *, half: Half = "bf16"
) -> tuple[tuple[Capability, ...], tuple[Skipped, ...]]:
    """Return the controls found in a configuration, and the ones that could not be used with the reason.

    Each of the 13 controls is in one of the two, in their order; one without any key has the reason ``NOT_THERE``.
    Only ``allocator_configuration`` may be in neither: an environment variable needs no key. Values are those of the
    configuration, unchanged; ``spelling.value_of`` reads them.

    One key of a control is taken, several are ambiguous, whether or not one is in a training section, with these
    exceptions: sections about another use than training are passed over; a key without a value (null) gives way to
    one with a value; the canonical name wins over aliases in the same mapping; in a DeepSpeed section "auto" gives
    way to a value elsewhere, and ``train_batch_size`` is the effective batch and no candidate. Beside an accumulation
    key it may be that too, so that it is a candidate beside others and not taken alone. A key that is no alias but
    called a micro- or mini-batch makes any other one ambiguous. Where a key such as ``global_batch_size`` sets the
    effective batch, accumulation is left out.

    ``half`` says which flag is taken of a pair ``fp16`` and ``bf16`` that are both off; a flag that is on is taken.
    ``torch_dtype`` and ``dtype`` name how weights are kept. They give way to a mixed-precision key or flag that is
    below fp32 already, or that says the same; where they disagree otherwise, nobody can tell what training uses.

    ``declarations`` is described at ``read_declarations``; a declared path wins over every rule above. Raises
    ``InvalidValue``, whose field starts with ``capabilities.``, for a declaration that is wrong, and for nothing else.
    """
    declared = read_declarations(declarations)
    places = find_places(config)
    outcomes: dict[str, Capability | str] = {}
    for control in CONTROLS:
        declaration = declared[control.name]
        values = _values(control, declaration, config, places, half)
        outcomes[control.name] = _settle(control, declaration, values, places)
    micro, accumulation = outcomes[MICRO], outcomes[ACCUMULATION]
    if isinstance(accumulation, Capability):
        batch = micro if isinstance(micro, Capability) else None
        withheld = accumulation_withheld(batch, accumulation, declared[ACCUMULATION], places)
        outcomes[ACCUMULATION] = withheld or accumulation
    found = tuple(one for one in outcomes.values() if isinstance(one, Capability))
    each_its_own(found)
    return found, tuple(Skipped(name, cut(one)) for name, one in outcomes.items() if isinstance(one, str) and one)


def _values(
    control: Control, declaration: Declaration, config: Mapping[str, Any], places: Mapping[str, list[Place]], half: Half
) -> list[Place]:
    path = declaration.path
    if path is not None:
        return [Place(path, path[:-1], naming_key(path), lookup(config, path, control.name), "value", False, False)]
    there = places.get(control.name, [])
    values = [place for place in there if place.kind in ("value", "unclear")]
    values = _canonical_first(control, _set(values))
    parts = [place for place in there if place.kind == "part" and any(one.raw is not None for one in values)]
    values = [*sorted(parts, key=lambda one: "micro" not in one.key), *values]
    if len(values) == 1 and values[0].kind == "unclear":
        return []
    return _precision(control, values, half) if control.name == "precision" else values


def _settle(
    control: Control, declaration: Declaration, values: list[Place], places: Mapping[str, list[Place]]
) -> Capability | str:
    """Return the capability, the reason why there is none, or "" where nothing has to be said."""
    if declaration.forbidden:
        return FORBIDDEN
    if not values:
        return _nowhere(control, places.get(control.name, []))
    if len(values) > 1:
        return _ambiguous(control, [place.path for place in values])
    place = values[0]
    if control.reading.read(place.key, place.raw) is None:
        return f"{shown(place.path)} holds {shown_value(place.raw)}; {control.reading.wanted} is needed."
    return Capability(
        name=control.name,
        path=place.path,
        value=place.raw,
        authority=declaration.authority,
        risk=declaration.risk,
        semantic=declaration.semantic,
        source="alias" if declaration.path is None else "declared",
    )


def _set(values: list[Place]) -> list[Place]:
    """Drop what is empty where something is set; several empty ones are as good as one."""
    full = [place for place in values if place.raw is not None]
    if not full:
        return values[:1]
    # DeepSpeed's "auto" is filled in from the arguments of the trainer around it.
    return [place for place in full if not (place.deepspeed and _is_auto(place.raw))] or full


def _is_auto(raw: Any) -> bool:
    return isinstance(raw, str) and raw.strip().lower() == "auto"


def _canonical_first(control: Control, values: list[Place]) -> list[Place]:
    homes = {place.home for place in values if place.key == control.name}
    return [place for place in values if place.key == control.name or place.home not in homes]


def _precision(control: Control, values: list[Place], half: Half) -> list[Place]:
    pairs: dict[tuple[Any, ...], list[Place]] = {}
    for place in values:
        # use_fp16 beside use_bf16 is a pair, use_fp16 beside bf16 is not.
        group = ("pair", place.home, place.key[:-4]) if place.key in FLAG_KEYS else ("alone", place.path)
        pairs.setdefault(group, []).append(place)
    settled = [place for group in pairs.values() for place in _pair(control, group, half)]
    storage = [place for place in settled if place.key in STORAGE_KEYS]
    computing = [place for place in settled if place.key not in STORAGE_KEYS]
    if len(computing) == 1:
        present = control.reading.read(computing[0].key, computing[0].raw)
        same = present is not None and all(control.reading.read(one.key, one.raw) == present for one in storage)
        if same or present in HALVES:
            return computing
    return settled


def _pair(control: Control, flags: list[Place], half: Half) -> list[Place]:
    """Return the one of a pair that says what is on, or the one that could be switched on."""
    if len({place.key for place in flags}) != len(flags) or len(flags) == 1:
        return flags
    present = {place.key: control.reading.read(place.key, place.raw) for place in flags}
    on = [place for place in flags if present[place.key] == FLAG_KEYS[place.key]]
    unreadable = [place for place in flags if present[place.key] is None]
    # Both on, or one on that nobody can read off: not for us to say.
    return on or unreadable[:1] or [place for place in flags if FLAG_KEYS[place.key] == half]


def _nowhere(control: Control, places: list[Place]) -> str:
    for kind in _REASONS:
        place = next((place for place in places if place.kind == kind), None)
        if place is not None:
            return _against(control, place)
    return "" if control.name in _NEEDS_NO_KEY else NOT_THERE


def _against(control: Control, place: Place) -> str:
    where = shown(place.path)
    if place.kind == "effective":
        return (
            f"{where} is DeepSpeed's effective batch: micro-batch times accumulation times devices. Add"
            f" train_micro_batch_size_per_gpu to the configuration. Where one device trains without accumulation, it is"
            f" the micro-batch too: declare {_declare(control, place.path)}"
        )
    if place.kind == "unclear":
        return (
            f"{where} stands beside {place.beside}: some programs, DeepSpeed for one, count devices and accumulated"
            f" steps in it. Where it is the batch of one backward pass on one device, declare"
            f" {_declare(control, place.path)} For DeepSpeed, add train_micro_batch_size_per_gpu."
        )
    if place.kind in ("part", "named"):
        return f"{where} could be it. If so, declare {_declare(control, place.path)}"
    if place.kind == "section":
        return f"{where} is a section. Declare the key in it that counts: {_declare(control, (*place.path, 'KEY'))}"
    if place.kind == "listed":
        return f"{where} lies inside a list, and a path leads through sections only. Move the value into a section."
    if place.kind == "deep":
        return f"{where} lies more than {MAX_PATH} keys deep. Move the value further up."
    return (
        f"Only a section about another use than training has it: {where}."
        f" If training reads it, declare {_declare(control, place.path)}"
    )


def _ambiguous(control: Control, paths: Sequence[tuple[str, ...]]) -> str:
    first = ", ".join(shown(path) for path in paths[:4])
    declare = f"Declare which one training uses: {_declare(control, paths[0])}"
    return f"{len(paths)} keys could be meant: {first}. {declare}"


def _declare(control: Control, path: Sequence[str]) -> str:
    text = json.dumps({control.name: {"path": list(path)}})
    if len(path) > MAX_PATH or len(text) > MAX_REASON // 4:
        return f'its whole path as {{"{control.name}": {{"path": [...]}}}}; it is too long to be shown here.'
    return f"{text}."
