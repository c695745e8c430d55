"""How a raw value of a configuration is read, and how another one is written the same way.

A reading turns what a configuration holds (``32``, ``"32"``, ``32.0``) into one canonical value, and a canonical
value back into the spelling of the place it goes to. ``None`` stands for "this place cannot say it" both ways.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

from watcherml.sealed.canonical import MAX_SAFE_INTEGER

# The last keys that stand for their section: `bf16: {enabled: true}`, `offload_optimizer: {device: cpu}`.
SWITCHES = ("enabled", "enable")
DEVICE = "device"

# Each pair is (on, off). "0" and "1" come last but one: a count is never read here, so they cannot be one.
_FLAG_WORDS = (
    ("true", "false"),
    ("yes", "no"),
    ("on", "off"),
    ("enabled", "disabled"),
    ("1", "0"),
    ("y", "n"),
    ("t", "f"),
)
_OFFLOADED = ("cpu", "nvme")
_KEPT = "none"
_DIGITS = re.compile(r"[0-9]{1,16}")


class Reading(Protocol):
    """How one control is read and written. ``key`` is the normalised key that holds the value."""

    @property
    def wanted(self) -> str:
        """What a usable value is, in words that end a sentence."""

    def leaves(self, key: str) -> tuple[str, ...]:
        """Return the keys that stand for the whole where ``key`` holds a section, the first one first."""

    def read(self, key: str, raw: Any) -> Any | None:
        """Return the canonical value of ``raw``, None where it is not usable."""

    def write(self, key: str, raw: Any, value: Any) -> Any | None:
        """Return ``value`` in the spelling of ``raw``, None where ``key`` cannot say it."""


def whole(raw: Any) -> int | None:
    """Return a whole number written as 32, "32" or 32.0; None for anything else, also for True and False."""
    number: int | None = None
    if type(raw) is int:
        number = raw
    elif type(raw) is float and raw.is_integer():
        number = int(raw)
    elif isinstance(raw, str) and _DIGITS.fullmatch(raw.strip()):
        number = int(raw.strip())
    return number if number is not None and abs(number) <= MAX_SAFE_INTEGER else None


def like(raw: str, text: str) -> str:
    """Return ``text`` with the capitals and the surrounding blanks of ``raw``."""
    bare = raw.strip()
    if bare.isupper():
        text = text.upper()
    elif bare[:1].isupper():
        text = text[:1].upper() + text[1:]
    return raw.replace(bare, text, 1) if bare else text


def sayable(text: str) -> bool:
    """Tell whether a text can be sealed: a lone surrogate has no bytes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class Count:
    """A whole number of at least ``low``."""

    low: int

    @property
    def wanted(self) -> str:
        """What a usable value is."""
        return f"a whole number of at least {self.low}"

    def leaves(self, key: str) -> tuple[str, ...]:
        """No key of a section stands for a number."""
        return ()

    def read(self, key: str, raw: Any) -> int | None:
        """Return the number."""
        number = whole(raw)
        return number if number is not None and number >= self.low else None

    def write(self, key: str, raw: Any, value: Any) -> Any | None:
        """Return the number as an integer, a float or digits, as the present one is."""
        if type(value) is not int or not self.low <= value <= MAX_SAFE_INTEGER:
            return None
        if isinstance(raw, str):
            return like(raw, str(value))
        return float(value) if isinstance(raw, float) else value


@dataclass(frozen=True)
class Flag:
    """True or false, in any of the usual words."""

    wanted: str = "true or false"

    def leaves(self, key: str) -> tuple[str, ...]:
        """A section stands for its switch."""
        return SWITCHES

    def read(self, key: str, raw: Any) -> bool | None:
        """Return the flag; 0 and 1 count as one."""
        if isinstance(raw, str):
            text = raw.strip().lower()
            return next((text == on for on, off in _FLAG_WORDS if text in (on, off)), None)
        return bool(raw) if type(raw) in (bool, int, float) and raw in (0, 1) else None

    def write(self, key: str, raw: Any, value: Any) -> Any | None:
        """Return the flag in the words, or the type, of the present one."""
        if type(value) is not bool:
            return None
        if isinstance(raw, str):
            text = raw.strip().lower()
            pair = next((pair for pair in _FLAG_WORDS if text in pair), None)
            return None if pair is None else like(raw, pair[0] if value else pair[1])
        return type(raw)(value) if type(raw) in (bool, int, float) else None


@dataclass(frozen=True)
class Offload:
    """Whether something leaves the device: a flag, or the name of the device it goes to."""

    wanted: str = 'true or false, or one of "none", "cpu", "nvme"'

    def leaves(self, key: str) -> tuple[str, ...]:
        """A section stands for its device, else for its switch."""
        return (DEVICE, *SWITCHES)

    def read(self, key: str, raw: Any) -> bool | None:
        """Return whether it is offloaded."""
        if isinstance(raw, str) and (text := raw.strip().lower()) in (*_OFFLOADED, _KEPT):
            return text != _KEPT
        return Flag().read(key, raw)

    def write(self, key: str, raw: Any, value: Any) -> Any | None:
        """Return "cpu" or "none" where a device is named, else a flag as the present one is written."""
        if isinstance(raw, str) and raw.strip().lower() in (*_OFFLOADED, _KEPT):
            # In small letters whatever the present one has: "None" is Python's spelling, "Cpu" nobody's.
            return None if type(value) is not bool else _OFFLOADED[0] if value else _KEPT
        return Flag().write(key, raw, value)


@dataclass(frozen=True)
class Bits:
    """Bits per number of the optimizer's state; a key of ``flags`` says 8 when it is on and 32 when it is off."""

    flags: tuple[str, ...]
    wanted: str = "4, 8, 16 or 32, or true or false for a switch of 8-bit Adam"

    def leaves(self, key: str) -> tuple[str, ...]:
        """No key of a section stands for a number of bits."""
        return ()

    def read(self, key: str, raw: Any) -> int | None:
        """Return the bits."""
        if key in self.flags:
            flag = Flag().read(key, raw)
            return None if flag is None else 8 if flag else 32
        number = whole(raw)
        return number if number in (4, 8, 16, 32) else None

    def write(self, key: str, raw: Any, value: Any) -> Any | None:
        """Return the bits as the present ones are written."""
        if type(value) is not int or value not in (4, 8, 16, 32):
            return None
        if key in self.flags:
            return Flag().write(key, raw, value == 8) if value in (8, 32) else None
        return Count(1).write(key, raw, value)


@dataclass(frozen=True)
class Words:
    """A text that means itself, without the blanks around it."""

    wanted: str = "text"

    def leaves(self, key: str) -> tuple[str, ...]:
        """No key of a section stands for a text."""
        return ()

    def read(self, key: str, raw: Any) -> str | None:
        """Return the stripped text, "" for an empty one."""
        return raw.strip() if isinstance(raw, str) and sayable(raw) else None

    def write(self, key: str, raw: Any, value: Any) -> str | None:
        """Return the text."""
        return value if isinstance(raw, str) and isinstance(value, str) else None
