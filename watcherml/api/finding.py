"""One thing that ``watcher doctor`` has looked at."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """One thing that was checked. ``fail``: something needed is broken; ``warn``: something is weaker or absent.

    ``remedy`` says what to do about it; it is empty only where ``status`` is ``ok``.
    """

    name: str
    status: Status
    sentence: str
    remedy: str = ""

    def to_data(self) -> dict[str, str]:
        """Return the finding as plain strings."""
        return asdict(self)
