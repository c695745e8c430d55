"""Numbers as a person reads them: bytes, seconds, counts, metric values, moments in UTC.

None means "not stated", which is never shown as zero.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone

NOT_STATED = "not stated"

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# GiB get a second digit, because one tenth of a GiB is already more than most shortfalls.
_BYTE_UNITS = (("KiB", 1), ("MiB", 1), ("GiB", 2), ("TiB", 2), ("PiB", 2))


def format_bytes(size: float | None, missing: str = NOT_STATED) -> str:
    """Return bytes in powers of 1024: ``512 bytes``, ``61.2 MiB``, ``14.00 GiB``; a minus sign is kept."""
    if size is None or not math.isfinite(size):
        return missing
    sign, rest = ("-" if size < 0 else ""), abs(float(size))
    if rest < 1024:
        return f"{sign}{rest:.0f} {'byte' if round(rest) == 1 else 'bytes'}"
    for unit, digits in _BYTE_UNITS:
        rest /= 1024
        # 1023.96 would round to "1024.0": the next unit says it better.
        if rest < 1024 and float(f"{rest:.{digits}f}") < 1024:
            return f"{sign}{rest:.{digits}f} {unit}"
    return f"{sign}{rest:.2f} PiB"


def format_seconds(seconds: float | None, missing: str = NOT_STATED) -> str:
    """Return a duration in seconds as ``0.42 s``, ``41 s``, ``1 min 12 s``, ``2 h 05 min`` or ``3 d 4 h``."""
    if seconds is None or not math.isfinite(seconds):
        return missing
    sign, rest = ("-" if seconds < 0 else ""), abs(float(seconds))
    if rest == 0:
        return "0 s"
    if rest < 9.95:
        return f"{sign}{rest:.2f} s" if rest < 0.995 else f"{sign}{rest:.1f} s"
    whole = round(rest)
    if whole < 60:
        return f"{sign}{whole} s"
    if whole < 3600:
        minutes, left = divmod(whole, 60)
        return f"{sign}{minutes} min" + (f" {left} s" if left else "")
    if whole < 86_400:
        hours, minutes = divmod(whole // 60, 60)
        return f"{sign}{hours} h" + (f" {minutes:02d} min" if minutes else "")
    days, hours = divmod(whole // 3600, 24)
    return f"{sign}{days} d" + (f" {hours} h" if hours else "")


def format_count(count: int | None, missing: str = NOT_STATED) -> str:
    """Return a whole number with thousands separated: ``12,000``."""
    return missing if count is None else f"{count:,}"


def format_number(value: float | None, missing: str = NOT_STATED) -> str:
    """Return a metric value with up to six significant digits; NaN and the infinities by name."""
    if value is None:
        return missing
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "infinity" if value > 0 else "-infinity"
    return f"{value:.6g}"


def format_time(seconds: float | None, missing: str = NOT_STATED) -> str:
    """Return seconds since 1970 as ``2026-03-01 12:00:05 UTC``."""
    if seconds is None or not math.isfinite(seconds):
        return missing
    try:
        # Not fromtimestamp: it refuses negative values on Windows.
        moment = _EPOCH + timedelta(seconds=math.floor(seconds))
    except OverflowError:
        return missing
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def plural(count: int, one: str, many: str = "") -> str:
    """Return the count with its noun: ``1 trial``, ``3 trials``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
