"""What differs between two configurations, path by path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from watcherml.report.safe import compact
from watcherml.sealed.canonical import canonical_bytes
from watcherml.sealed.record import thaw

ABSENT = object()


@dataclass(frozen=True)
class Difference:
    """One path with its JSON value before and after; ``ABSENT`` where a configuration does not have it."""

    path: str
    old: Any
    new: Any

    @property
    def before(self) -> str:
        """The value before, as JSON on one line; ``(none)`` if absent."""
        return _words(self.old)

    @property
    def after(self) -> str:
        """The value after, as JSON on one line; ``(none)`` if absent."""
        return _words(self.new)


def differences(before: Any, after: Any) -> list[Difference]:
    """Return the differing paths of two JSON values, in the order of the first, then what only the second has."""
    return [Difference(path or "(all)", old, new) for path, old, new in _walk(thaw(before), thaw(after), "")]


def _walk(before: Any, after: Any, path: str) -> list[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        found: list[tuple[str, Any, Any]] = []
        for key in [*before, *(key for key in after if key not in before)]:
            where = f"{path}.{key}" if path else str(key)
            found.extend(_walk(before.get(key, ABSENT), after.get(key, ABSENT), where))
        return found
    if before is ABSENT or after is ABSENT:
        return [(path, before, after)]
    # By canonical bytes, because True == 1 in Python and not in a configuration.
    return [] if canonical_bytes(before) == canonical_bytes(after) else [(path, before, after)]


def _words(value: Any) -> str:
    return "(none)" if value is ABSENT else compact(value)
