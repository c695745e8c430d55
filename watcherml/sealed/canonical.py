"""Canonical JSON (RFC 8785) and the digests taken over it.

Two programs that hold the same value must produce the same bytes, so that a digest names a value and
not a spelling. RFC 8785 fixes key order (UTF-16 code units), string escapes and number spelling
(ECMAScript's shortest form); the test suite compares this module with an independent implementation.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from watcherml.errors import InvalidRecord, InvalidValue

# RFC 8785 numbers are IEEE doubles; an integer beyond this would change when another reader parses it.
MAX_SAFE_INTEGER = 2**53 - 1
MAX_DEPTH = 64

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def canonical_bytes(value: Any, path: str = "$") -> bytes:
    """Return the RFC 8785 bytes of a JSON value.

    Raises ``InvalidValue`` naming the path for NaN, infinity, integers beyond 2**53 - 1, lone
    surrogates, non-string keys, nesting deeper than 64, and types that JSON does not have.
    """
    return "".join(_spell(value, path, 0)).encode("utf-8")


def digest(kind: str, version: int, value: Any) -> str:
    """Return ``sha256:<hex>`` over kind, version and canonical bytes, so that kinds never collide."""
    head = f"{kind}\n{version}\n".encode()
    return "sha256:" + hashlib.sha256(head + canonical_bytes(value)).hexdigest()


def parse_json(text: str | bytes, path: str = "$") -> Any:
    """Parse JSON strictly: repeated keys, NaN, infinity and invalid UTF-8 raise ``InvalidRecord``."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise InvalidRecord(path, expected="each key once", got=f"the key {key!r} repeated")
            found[key] = value
        return found

    def refuse(word: str) -> Any:
        raise InvalidRecord(path, expected="finite numbers", got=word)

    def finite(word: str) -> float:
        number = float(word)
        if math.isinf(number):
            raise InvalidRecord(path, expected="a number within double range", got=word[:40])
        return number

    def whole(word: str) -> int | float:
        if len(word) <= 15 or abs(int(word)) <= MAX_SAFE_INTEGER:
            return int(word)
        number = finite(word)  # a double of integral value, such as 1e20, is spelled without an exponent
        if _number(number, path) != word:
            raise InvalidRecord(path, expected="an integer of magnitude at most 2**53 - 1", got=word[:40])
        return number

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=refuse, parse_float=finite, parse_int=whole)
    except RecursionError:
        raise InvalidRecord(path, expected=f"at most {MAX_DEPTH} levels of nesting", got="more") from None
    except UnicodeDecodeError as error:
        raise InvalidRecord(path, expected="UTF-8 text", got=str(error)) from None
    except json.JSONDecodeError as error:
        raise InvalidRecord(path, expected="a JSON document", got=f"{error.msg} at character {error.pos}") from None
    except InvalidRecord:
        raise
    except ValueError as error:  # an integer of thousands of digits
        raise InvalidRecord(path, expected="a JSON document", got=str(error)) from None


def _spell(value: Any, path: str, depth: int) -> Iterator[str]:
    if depth > MAX_DEPTH:
        raise InvalidValue(path, expected=f"at most {MAX_DEPTH} levels of nesting", got="more")
    if value is None:
        yield "null"
    elif value is True:
        yield "true"
    elif value is False:
        yield "false"
    elif isinstance(value, str):
        yield _string(value, path)
    elif isinstance(value, int):
        if abs(value) > MAX_SAFE_INTEGER:
            raise InvalidValue(path, expected="an integer of magnitude at most 2**53 - 1", got="a larger one")
        yield str(int(value))
    elif isinstance(value, float):
        yield _number(value, path)
    elif isinstance(value, Mapping):
        yield from _object(value, path, depth)
    elif isinstance(value, (list, tuple)):
        yield "["
        for index, item in enumerate(value):
            if index:
                yield ","
            yield from _spell(item, f"{path}[{index}]", depth + 1)
        yield "]"
    else:
        raise InvalidValue(path, expected="a JSON value", got=type(value).__name__)


def _object(value: Mapping[Any, Any], path: str, depth: int) -> Iterator[str]:
    for key in value:
        if not isinstance(key, str):
            raise InvalidValue(path, expected="string keys", got=f"the {type(key).__name__} key {key!r}"[:120])
    yield "{"
    # surrogatepass only orders; a lone surrogate is refused when the key itself is spelled.
    for index, key in enumerate(sorted(value, key=lambda k: k.encode("utf-16-be", "surrogatepass"))):
        if index:
            yield ","
        yield _string(key, path)
        yield ":"
        yield from _spell(value[key], f"{path}.{key}", depth + 1)
    yield "}"


def _string(text: str, path: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidValue(path, expected="valid Unicode text", got="a lone surrogate") from None
    parts = ['"']
    for char in text:
        if char in _ESCAPES:
            parts.append(_ESCAPES[char])
        elif char < " ":
            parts.append(f"\\u{ord(char):04x}")
        else:
            parts.append(char)
    parts.append('"')
    return "".join(parts)


def _number(value: float, path: str) -> str:
    if not math.isfinite(value):
        raise InvalidValue(path, expected="a finite number", got=repr(value))
    if value == 0:
        return "0"  # also for -0.0, as ECMAScript prints it
    sign = "-" if value < 0 else ""
    # repr gives the shortest digits that round-trip, which are the digits ECMAScript asks for.
    mantissa, _, exponent = float.__repr__(abs(value)).partition("e")  # a subclass may print itself otherwise
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0")
    leading_zeros = len(whole + fraction) - len(digits)
    point = len(whole) - leading_zeros + int(exponent or 0)
    digits = digits.rstrip("0") or "0"
    return sign + _place_point(digits, point)


def _place_point(digits: str, point: int) -> str:
    count = len(digits)
    if count <= point <= 21:
        return digits + "0" * (point - count)
    if 0 < point <= 21:
        return digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    power = point - 1
    tail = f"e{'+' if power >= 0 else '-'}{abs(power)}"
    return digits[0] + ("." + digits[1:] if count > 1 else "") + tail
