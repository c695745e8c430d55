"""Ids that sort by time and read well: a project slug and a random suffix."""

from __future__ import annotations

import re
import secrets

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def slug(text: str, limit: int = 40) -> str:
    """Return a name as lower-case letters, digits and dashes; ``run`` where nothing is left."""
    cleaned = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:limit].strip("-")
    return cleaned or "run"


def new_id(prefix: str, now: float) -> str:
    """Return ``prefix-TTTTTTTTRRRRR``: milliseconds since 1970 in base 36, then five random digits."""
    return f"{slug(prefix)}-{_base36(int(now * 1000), 8)}{_base36(secrets.randbelow(36**5), 5)}"


def _base36(number: int, width: int) -> str:
    text = ""
    while number:
        number, rest = divmod(number, 36)
        text = _DIGITS[rest] + text
    return text.rjust(width, "0")
