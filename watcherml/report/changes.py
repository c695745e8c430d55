"""What differs between two configurations, path by path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from watcherml.report.safe import compact
from watcherml.sealed.paths import ABSENT, differing
from watcherml.sealed.record import thaw


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
    return [Difference(path or "(all)", old, new) for path, old, new in differing(thaw(before), thaw(after))]


def _words(value: Any) -> str:
    return "(none)" if value is ABSENT else compact(value)
