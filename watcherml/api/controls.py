"""What a trainer knows of its configuration beside what a person wrote: no control is named twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watcherml.planning.capability import BY_ALIAS, normalised
from watcherml.planning.controls_places import find_places

_NAMING = ("value", "unclear", "section", "effective")
_MODEL = ("model", "model_name", "model_name_or_path", "model_id")


def complete(own: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a person's configuration with what was found beside it.

    A person's key wins. Of ``found`` a key is left out whose control (micro-batch, precision, ...) the person's
    configuration names under any alias: two keys for one control could not be told apart by a plan. The same goes for
    the name of the model.
    """
    named = {name for name, places in find_places(own).items() if any(place.kind in _NAMING for place in places)}
    has_model = any(key in own for key in _MODEL)

    def repeats(key: str) -> bool:
        control = BY_ALIAS.get(normalised(key))
        return (control is not None and control.name in named) or (has_model and key in _MODEL)

    return {**{key: value for key, value in found.items() if not repeats(key)}, **own}
