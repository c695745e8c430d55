"""Numbers of any library as floats."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

from watcherml.errors import InvalidValue

# The standard library's numbers that are no int or float, by module: looked at only where the program has loaded it.
_EXACT = (("decimal", "Decimal"), ("fractions", "Fraction"))


def as_number(value: Any, what: str) -> float:
    """Return a number as the nearest float, infinity where it is too large.

    Numbers are int, float, Decimal, Fraction, and those of numpy and torch with no dimensions. Raises ``InvalidValue``
    for anything else: text that reads like a number, truth values, complex numbers, a tensor without data.
    """
    try:
        found = _float(value)
        found = _item(value) if found is None else found
    except Exception as error:  # a tensor on the meta device has no value; each library has its own errors
        got = f"{type(value).__name__} without a value (raises {type(error).__name__}: {shown(error, str)})"
        raise InvalidValue(what, expected="a number", got=got) from error
    if found is None:
        raise InvalidValue(what, expected="a number", got=f"{shown(value)} ({type(value).__name__})")
    return found


def shown(value: Any, words: Callable[[Any], str] = repr) -> str:
    """Return the first 80 characters of what an object says of itself; its type if it raises."""
    try:
        return words(value)[:80]
    except Exception:  # noqa: BLE001 - the object's own code, and what is wrong with the argument has to be told
        return f"<{type(value).__name__}>"


def _item(value: Any) -> float | None:
    item = getattr(value, "item", None)
    if not callable(item) or getattr(value, "ndim", None) != 0:
        return None
    if getattr(value, "mask", False):  # numpy's masked constant, whose item() is 0.0
        raise ValueError("it is masked")
    return _float(item())


def _float(value: Any) -> float | None:
    if isinstance(value, bool) or not (isinstance(value, (int, float)) or _is_exact(value) or _is_long_double(value)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except ValueError:  # a signalling NaN of decimal
        return math.nan


def _is_exact(value: Any) -> bool:
    for module, name in _EXACT:
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(value, kind):
            return True
    return False


def _is_long_double(value: Any) -> bool:
    """Tell whether it is numpy's widest float, whose ``item()`` is itself."""
    kind = getattr(sys.modules.get("numpy"), "longdouble", None)
    return isinstance(kind, type) and isinstance(value, kind)
