"""Where two JSON values differ, path by path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from watcherml.sealed.canonical import canonical_bytes

ABSENT = object()
"""Stands for a value that one of the two does not have; None is a value."""


def differing(before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield (dotted path, before, after) of what differs, in the order of the first, then what only the second has.

    Mappings are walked, and so are lists of equal length that hold mappings (``layers.2.width``); any other list is
    one value. A value that one side lacks is ``ABSENT`` there. The path of the whole is empty.
    """
    yield from _walk(before, after, "")


def leaves(value: Any) -> dict[str, Any]:
    """Return the values of nested mappings by dotted path; a list is one value, an empty mapping too."""
    found: dict[str, Any] = {}
    _collect(value, "", found)
    return found


def _walk(before: Any, after: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(key for key in after if key not in before)]:
            yield from _walk(before.get(key, ABSENT), after.get(key, ABSENT), _join(path, key))
    elif before is ABSENT or after is ABSENT:
        yield path, before, after
    elif _are_rows(before) and _are_rows(after) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _walk(old, new, _join(path, index))
    # By canonical bytes, because True == 1 in Python and not in a configuration.
    elif canonical_bytes(before) != canonical_bytes(after):
        yield path, before, after


def _are_rows(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value)


def _collect(value: Any, path: str, found: dict[str, Any]) -> None:
    if not isinstance(value, (dict, Mapping)) or not value:
        if path:
            found[path] = value
        return
    head = f"{path}." if path else ""
    for key, item in value.items():
        # Told from a mapping here: most values are none, and a call for each is most of the time.
        if isinstance(item, (dict, Mapping)) and item:
            _collect(item, f"{head}{key}", found)
        else:
            found[f"{head}{key}"] = item


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)
