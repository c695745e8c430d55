"""Text from outside, made harmless before any face shows it.

Names, messages and configuration values come from people and from code under test. A control character can
repaint a terminal, a direction mark can reverse what is read, a lone surrogate cannot be encoded at all.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from typing import Any

# Direction marks and invisible characters that let a text read otherwise than it is.
_INVISIBLE = (0x061C, 0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F), 0x2060, *range(0x2066, 0x206A), 0xFEFF)
_CONTROL = (*range(0x20), *range(0x7F, 0xA0))
# A carriage return before a line feed is a line ending; alone it is shown like any control character.
_LINE = {code: _name for code in _CONTROL for _name in [f"\\x{code:02x}"]}
_LINE.update({code: f"\\u{code:04x}" for code in _INVISIBLE})
_MANY = {code: name for code, name in _LINE.items() if code not in (0x09, 0x0A)}
_LINE.update({0x09: " ", 0x0A: "\\n", 0x0D: "\\r"})
_IN_JSON = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *_INVISIBLE)}


def one_line(value: object, limit: int | None = None) -> str:
    """Return any value as one harmless line; ``limit`` is in characters (see ``shorten``)."""
    text = _encodable(str(value)).translate(_LINE)
    return text if limit is None else shorten(text, limit)


def many_lines(value: object, limit: int | None = None) -> str:
    """Return any value as harmless text that keeps its lines; beyond ``limit`` characters the middle is left out."""
    text = _encodable(str(value)).replace("\r\n", "\n").translate(_MANY)
    if limit is None or len(text) <= limit:
        return text
    head, tail = text[: limit // 3], text[-(limit - limit // 3) :]
    return f"{head}\n… {len(text) - limit:,} characters left out …\n{tail}"


def shorten(text: str, limit: int) -> str:
    """Return at most ``limit`` characters, the middle replaced by an ellipsis: ids and paths differ at their ends."""
    if len(text) <= limit:
        return text
    tail = max(0, (limit - 1) // 3)
    return text[: limit - 1 - tail] + "…" + (text[-tail:] if tail else "")


def cut(text: str, limit: int) -> str:
    """Return at most ``limit`` terminal columns of a sentence, its end replaced by an ellipsis."""
    if width(text) <= limit:
        return text
    taken, kept = 1, 0
    for char in text:
        taken += width(char)
        if taken > limit:
            break
        kept += 1
    return text[:kept].rstrip() + "…"


def json_text(value: Any) -> str:
    """Return a configuration as indented JSON that can be copied; a value JSON lacks is shown as text.

    Invisible characters are written as JSON escapes, so that the copy still means the same.
    """
    text = json.dumps(_thaw(value), indent=2, ensure_ascii=False, default=str)
    return _encodable(text).translate(_IN_JSON)


def compact(value: Any, limit: int = 80) -> str:
    """Return a JSON value on one line, at most ``limit`` characters; text is quoted as JSON does it."""
    return one_line(json.dumps(_thaw(value), ensure_ascii=False, default=str), limit)


def width(text: str) -> int:
    """Return how many terminal columns a line takes: wide characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def flat(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Return the leaves of nested mappings as (dotted path, value), in their own order."""
    if not isinstance(value, Mapping) or (not value and prefix):
        return [(prefix, value)] if prefix else []
    found: list[tuple[str, Any]] = []
    for key, item in value.items():
        found.extend(flat(item, f"{prefix}.{key}" if prefix else str(key)))
    return found


def _thaw(value: Any) -> Any:
    from watcherml.sealed.record import thaw  # lists of runs are made without any sealed value

    return thaw(value)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
