"""Numbers of any library as floats."""

from __future__ import annotations

import math
from typing import Any

from watcherml.errors import InvalidValue


def as_number(value: Any, what: str) -> float:
    """Return a Python, numpy or 0-dim torch number as float; ``InvalidValue`` for anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    item = getattr(value, "item", None)
    if callable(item) and not isinstance(value, bool) and getattr(value, "ndim", None) == 0:
        number = item()
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            return float(number)
    raise InvalidValue(what, expected="a number", got=f"{value!r:.80} ({type(value).__name__})")
