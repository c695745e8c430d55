"""Where the value of an assignment stands in a text: plain words, literals of Python, lists, and blocks of YAML.

Nothing here judges a value. Every search is bounded, so that the time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_MAX_QUOTED = 20_000
_MAX_ITEMS = 200  # of one list

_BARE = re.compile(r"[^\s\"'`,;<>(){}&|\\]{1,4000}")
_BARE_SHORT = re.compile(r"[^\s\"'`,;<>(){}&|\\]{1,300}")
_REST_OF_LINE = re.compile(r"[^\s\"'`][^\r\n]{0,4000}?(?=[ \t]+#|[ \t]*[,;]?[ \t]*(?:\r?\n|\Z))")
_PREFIX = re.compile(r"[rbfuRBFU]{1,2}(?=[\"'])")
# What may stand before a literal: a continued line, brackets, a type that takes it as it is.
_WRAPPED = re.compile(
    r"(?:\\\r?\n[ \t]{0,40}|[(\[][ \t\r\n]{0,40}|(?:[A-Za-z_]\w{0,20}\.){0,2}(?P<call>str|bytes|bytearray|SecretStr"
    r"|SecretBytes|b64decode|unhexlify|fromhex|dedent|quote_plus|Field|field|Variable)\([ \t\r\n]{0,40}"
    r"(?:default[ \t]?=[ \t]?)?){1,4}(?=[rbfuRBFU]{0,2}\\?[\"'])"
)
_NEXT = re.compile(r"[ \t\r\n]{0,40},[ \t\r\n]{0,40}(?=[rbfuRBFU]{0,2}\\?[\"'])")
_JOINED = re.compile(r"[ \t]{0,8}\+?[ \t]{0,8}(?=[rbfuRBFU]{0,2}[\"'])")
_JOINED_INSIDE = re.compile(r"[ \t\r\n]{0,40}\+?[ \t\r\n]{0,40}(?=[rbfuRBFU]{0,2}[\"'])")
_BLOCK = re.compile(r"[|>][+-]?[1-9]?[+-]?[ \t]{0,4}\r?\n")
_ITEM = re.compile(
    r"[ \t]{0,8}\r?\n(?P<indent>[ \t]{0,40})-[ \t]{1,8}(?![ \t\r\n-])(?![\w.-]{1,40}[ \t]{0,4}:[ \t\r\n])"
)
# An expression that ends in a literal: ``os.environ.get("A") or "..."``, ``"a" if debug else "..."``.
_OTHERWISE = re.compile(
    r"(?:\((?:[^()\n]|\([^()\n]{0,60}\)){0,80}\)|[^\n;#=,()]|[=!<>]=){0,120}?[ \t)\]\"'](?:or|else|\|\||\?\?)"
    r"[ \t(]{1,8}(?=[rbfuRBFU]{0,2}\\?[\"'])"
)
_CODE_FORMS = ("=", " = ", "entry")
# ``{"name": "..."``, and what follows it after a comma.
_KEYED = re.compile(
    r"[{,][ \t\r\n]{0,40}[rbfuRBFU]{0,2}\\?[\"'][^\"'\n\\]{1,100}\\?[\"'][ \t]{0,4}:[ \t\r\n]{0,40}"
    r"(?=[rbfuRBFU]{0,2}\\?[\"'])"
)


class Value(NamedTuple):
    """Characters ``start`` to ``end`` of a text.

    ``quoted`` if it is a literal, ``whole`` if it is lines of YAML, ``keyed`` if it is a value of a mapping.
    """

    start: int
    end: int
    quoted: bool = False
    whole: bool = False
    keyed: bool = False


def values_at(text: str, start: int, form: str, long: bool) -> Iterator[Value]:
    """Yield the value that begins at ``start``, or each one of a list or of literals that are joined.

    ``form`` is how the name is tied to the value, as ``assignments`` names it; ``long`` lets a bare word be longer
    than a name can be.
    """
    if form in (":", "entry"):
        blocks = list(_of_yaml(text, start))
        if blocks:
            yield from blocks
            return
    if form in (":", *_CODE_FORMS) and text.startswith("{", start):
        yield from _of_mapping(text, start)
        return
    if form in _CODE_FORMS:
        yield from _otherwise(text, start)
    wrapped = None if form in ("flag", "tag") else _WRAPPED.match(text, start)
    first = _one(text, wrapped.end() if wrapped else start, long)
    yield first
    if not first.quoted or form in ("flag", "tag", "pair", "call"):
        return
    inside = wrapped is not None and wrapped.group().rstrip()[-1:] in "(["
    listed = wrapped is not None and inside and wrapped.group("call") is None
    last = first
    for _ in range(_MAX_ITEMS):
        closed = _closing(text, last)
        following = _NEXT.match(text, closed) if listed else None
        joined = None if following else (_JOINED_INSIDE if inside else _JOINED).match(text, closed)
        following = following or joined
        if following is None:
            return
        quote, last = text[last.end : closed], _one(text, following.end(), long)
        # Another kind of quote closes the text that the assignment is in.
        if not last.quoted or (joined and not text.startswith(quote, last.end)):
            return
        yield last


def _otherwise(text: str, start: int) -> Iterator[Value]:
    """Yield the literals that an expression falls back to."""
    first = _one(text, start, False)
    position = _closing(text, first) if first.quoted else start
    for _ in range(4):
        found = _OTHERWISE.match(text, position)
        if found is None:
            return
        value = _one(text, found.end(), True)
        if not value.quoted:
            return
        yield value
        position = _closing(text, value)


def _of_mapping(text: str, start: int) -> Iterator[Value]:
    position = start
    for _ in range(_MAX_ITEMS):
        key = _KEYED.match(text, position)
        value = None if key is None else _one(text, key.end(), True)
        if value is None or not value.quoted:
            return
        yield value._replace(keyed=True)
        rest = text[_closing(text, value) : _closing(text, value) + 40]
        position = _closing(text, value) + len(rest) - len(rest.lstrip())


def rest_of_line(text: str, start: int, end: int) -> int:
    """Return the end of a bare value of YAML, which may hold blanks."""
    rest = _REST_OF_LINE.match(text, start)
    return max(end, rest.end()) if rest else end


def _one(text: str, start: int, long: bool) -> Value:
    prefix = _PREFIX.match(text, start)
    start = prefix.end() if prefix else start
    quote = _quote_at(text, start)
    if quote:
        first = start + len(quote)
        end = text.find(quote, first, first + _MAX_QUOTED)
        while len(quote) == 1 and end > 0 and text[end - 1] == "\\" and end > first:
            end = text.find(quote, end + 1, first + _MAX_QUOTED)
        line = text.find("\n", first, end if end >= 0 else first + _MAX_QUOTED)
        if end >= 0 and (line < 0 or len(quote) == 3):
            return Value(first, end, True)
        start = first  # a quote that is never closed: the excerpt ends before it does
    found = (_BARE if long else _BARE_SHORT).match(text, start)
    return Value(start, found.end() if found else start)


def _quote_at(text: str, start: int) -> str:
    return next((one for one in ('"""', "'''", '\\"', "\\'", '"', "'") if text.startswith(one, start)), "")


def _closing(text: str, value: Value) -> int:
    """Return the place behind the quote that closes a literal."""
    return value.end + len(_quote_at(text, value.end))


def _of_yaml(text: str, start: int) -> Iterator[Value]:
    """Yield the lines of a block scalar, or the items of a list, that belong to the key before ``start``."""
    block = _BLOCK.match(text, start)
    if block:
        yield from _of_block(text, start, block.end())
        return
    position, outer, indent = start, _indent(text, start), ""
    for count in range(_MAX_ITEMS):
        item = _ITEM.match(text, position)
        if item is None or len(item["indent"]) < outer or (count and item["indent"] != indent):
            return
        indent = item["indent"]
        value = _one(text, item.end(), True)
        yield value if value.quoted else Value(value.start, rest_of_line(text, value.start, value.end), whole=True)
        position = _closing(text, value) if value.quoted else rest_of_line(text, value.start, value.end)


def _of_block(text: str, start: int, first: int) -> Iterator[Value]:
    outer, position, end = _indent(text, start), first, first
    while position < len(text) and position - first < _MAX_QUOTED:
        stop = text.find("\n", position, first + _MAX_QUOTED) + 1 or min(len(text), first + _MAX_QUOTED)
        line = text[position:stop]
        if line.strip():
            if len(line) - len(line.lstrip(" \t")) <= outer:
                break
            end = stop
        position = stop
    body = text[first:end]
    if body.strip():
        yield Value(first + len(body) - len(body.lstrip()), first + len(body.rstrip()), whole=True)


def _indent(text: str, place: int) -> int:
    """Return how many blanks the line of a place begins with."""
    first = text.rfind("\n", max(0, place - 400), place) + 1
    line = text[first:place]
    return len(line) - len(line.lstrip(" \t"))
