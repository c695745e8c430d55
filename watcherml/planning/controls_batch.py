"""Whether accumulation can keep the effective batch, or another key of the configuration sets it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from watcherml.planning.controls_declared import Declaration
from watcherml.planning.controls_places import Place, find_places
from watcherml.planning.controls_words import is_part_of_batch, is_set
from watcherml.planning.wording import shown
from watcherml.protocol.proposal import Capability

MICRO = "micro_batch_size"
ACCUMULATION = "gradient_accumulation_steps"


def accumulation_withheld(
    micro: Capability | None, accumulation: Capability, told: Declaration, places: Mapping[str, list[Place]]
) -> str:
    """Return why accumulation must not be raised, or an empty string where it may be.

    A key such as ``global_batch_size`` sets the effective batch, and the framework derives the accumulation from it;
    a declaration that names the accumulation's path says otherwise. Nobody can say so of a batch key that counts
    accumulated steps itself: it goes down, and accumulation cannot make up for that.
    """
    own = next((one for one in _whole(places) if micro is not None and one.path == micro.path), None)
    if own is not None:
        return f"{shown(own.path)} counts accumulated steps itself, so that more of them do not keep it."
    setting = next((one for one in _whole(places) if one.kind == "whole"), None)
    if setting is None or told.path is not None:
        return ""
    where = shown(accumulation.path)
    text = json.dumps({ACCUMULATION: {"path": list(accumulation.path)}})
    remedy = f"declare {text}." if len(text) <= 500 else "declare its whole path."
    return (
        f"{shown(setting.path)} sets the effective batch, and the framework may derive the accumulation from it."
        f" If training reads {where} all the same, {remedy}"
    )


def batch_caution(config: Mapping[str, Any], micro: Capability, accumulated: bool) -> str:
    """Return what has to be said of the effective batch beside a smaller micro-batch, "" where the label says it all.

    ``accumulated`` tells whether accumulation goes up with it.
    """
    places = find_places(config)
    whole = [one for one in _whole(places) if one.path != micro.path]
    if accumulated:
        setting = next((one for one in whole if one.kind == "whole"), None)
        if setting is None:
            return ""
        return f"{shown(setting.path)} is set: if the framework derives the accumulation from it, that key rules."
    if len(whole) != len(_whole(places)):
        return f"Changes the effective batch: {shown(micro.path)} is the effective batch itself."
    whole += _larger(places, micro)
    if whole:
        return (
            f"{shown(whole[0].path)} is set: the framework may derive the accumulation from it, so that the effective"
            f" batch may stay."
        )
    return "Changes the effective batch: no accumulation control could be used."


def _whole(places: Mapping[str, list[Place]]) -> list[Place]:
    """Return the keys that are the batch of an update, those of unambiguous names first."""
    found = [one for one in places.get(MICRO, []) if one.kind in ("whole", "effective") and is_set(one.raw)]
    return sorted(found, key=lambda one: one.kind != "whole")


def _larger(places: Mapping[str, list[Place]], micro: Capability) -> list[Place]:
    """Return the batch keys beside one that is called a micro-batch: they may be what it is a part of."""
    mine = next((one for one in places.get(MICRO, []) if one.path == micro.path), None)
    if mine is None or not is_part_of_batch(mine.key):
        return []
    beside = [one for one in places[MICRO] if one.home == mine.home and one.kind in ("value", "unclear")]
    return [one for one in beside if not is_part_of_batch(one.key) and is_set(one.raw)]
