"""What lists, dicts and objects hold, a few levels below a name: models, optimizers, tensors. No user code is run."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

MOST_LOOKED_AT = 20_000  # objects in all
MOST_OF_ONE = 2_000  # items of one container
DEEPEST = 4
# A step's own batch is a handful of tensors; data sets, copies of weights and collected outputs are more.
FEWEST_TENSORS = 8
_SEQUENCES = (list, tuple, set, frozenset, deque)
_MAPPINGS = (dict, OrderedDict)


@dataclass
class Contained:
    """The user's objects: use them inside one call and let them go. ``tensors`` of the containers that hold many."""

    modules: dict[int, Any] = field(default_factory=dict)
    optimizers: dict[int, Any] = field(default_factory=dict)
    tensors: dict[int, Any] = field(default_factory=dict)


def contained(
    roots: Iterable[Any], kinds: tuple[type, type, type], attributes: Callable[[Any], list[Any]]
) -> Contained:
    """Look below ``roots`` for instances of ``kinds`` (module, optimizer, tensor); ``attributes`` lists an object's."""
    found, seen, left = Contained(), set[int](), MOST_LOOKED_AT
    for root in roots:
        if type(root) not in _SEQUENCES + _MAPPINGS or id(root) in seen:
            continue
        tensors: dict[int, Any] = {}
        waiting = [(one, 1) for one in _items(root)]
        seen.add(id(root))
        while waiting and left > 0:
            value, depth = waiting.pop()
            left -= 1
            if id(value) in seen:
                continue
            seen.add(id(value))
            into = next(
                (place for kind, place in zip(kinds, (found.modules, found.optimizers, tensors), strict=True)
                 if issubclass(type(value), kind)), None,
            )  # fmt: skip
            if into is not None:
                into[id(value)] = value
            elif depth < DEEPEST:
                below = _items(value) if type(value) in _SEQUENCES + _MAPPINGS else attributes(value)[:MOST_OF_ONE]
                waiting += [(one, depth + 1) for one in below]
        if len(tensors) >= FEWEST_TENSORS:
            found.tensors.update(tensors)
    return found


def _items(container: Any) -> list[Any]:
    try:
        return list(islice(container.values() if type(container) in _MAPPINGS else container, MOST_OF_ONE))
    except RuntimeError:  # another thread changes it just now
        return []
