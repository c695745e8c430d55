"""Whole numbers that are floats: RFC 8785 spells 1.0 as 1, and a program may tell the two apart.

A trainer that takes "1.0" as all batches and "1" as one batch has to get back what was recorded. The places of such
numbers are sealed beside a configuration, as JSON Pointers (RFC 6901), and put back where it leaves our hands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def whole_floats(value: Any) -> tuple[str, ...]:
    """Return the JSON Pointers of every float of integral value, in the order of the document."""
    return tuple(_find(value, ""))


def restore_floats(value: Any, pointers: Iterable[str]) -> Any:
    """Return plain JSON (dicts and lists, changed in place) with the integers at the pointers as floats again.

    A pointer to something else, or to nothing, is passed over: a change may have put another value there.
    """
    for pointer in pointers:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
        target: Any = value
        for part in parents:
            target = _step(target, part)
        present = _step(target, last)
        if type(present) is int:
            if isinstance(target, list):
                target[int(last)] = float(present)
            else:
                target[last] = float(present)
    return value


def _step(value: Any, part: str) -> Any:
    if isinstance(value, dict):
        return value.get(part)
    if isinstance(value, list) and part.isascii() and part.isdigit() and int(part) < len(value):
        return value[int(part)]
    return None


def _find(value: Any, pointer: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _find(item, f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _find(item, f"{pointer}/{index}")
    elif isinstance(value, float) and value.is_integer() and pointer:
        yield pointer
