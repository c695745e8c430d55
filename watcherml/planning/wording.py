"""Keys and values of a person's configuration in a sentence, never longer than the sentence can bear."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from reprlib import Repr
from typing import Any

from watcherml.sealed.canonical import MAX_SAFE_INTEGER

MAX_REASON = 2000  # characters, what a plan can hold
_MAX_PATH = 300  # characters
_MAX_KEY = 80  # characters


def shown(path: Sequence[str], limit: int = _MAX_PATH) -> str:
    """Return a path with points; a name with line breaks or without end does not break the sentence around it."""
    keys = [key if key.isprintable() and len(key) <= _MAX_KEY else f"{json.dumps(key)[:60]}..." for key in path]
    return cut(".".join(keys), limit)


def shown_value(raw: Any) -> str:
    """Return a value of a configuration in a few words."""
    if isinstance(raw, Mapping):
        return "a section"
    if isinstance(raw, (list, tuple)):
        return "a list"
    if type(raw) is int and abs(raw) > MAX_SAFE_INTEGER:
        return "a number beyond 2**53"  # thousands of digits cannot even be printed
    return brief(raw, 60)


def brief(value: Any, limit: int = 80) -> str:
    """Return the ``repr`` of anything, however deep or long, in at most ``limit`` characters."""
    writer = Repr()
    writer.maxstring = writer.maxother = limit
    writer.maxlist = writer.maxtuple = writer.maxdict = 8
    if type(value) is str:
        return repr(value[:limit])[:limit]
    try:
        return writer.repr(value)[:limit]
    except (ValueError, RecursionError):  # an integer with more digits than Python prints
        return f"{type(value).__name__} of great size"[:limit]


def cut(text: str, limit: int = MAX_REASON) -> str:
    """Return a text in at most ``limit`` characters: what is too much is taken out of its middle."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    return f"{text[: limit - tail - 3]}...{text[-tail:]}"
