"""A verdict's checks, grouped by what they are about."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from watcherml.protocol.verdict import Check
from watcherml.report.units import format_bytes

CHAIN = "the campaign"
_TITLES = {"full": "the full trial"}


@dataclass(frozen=True)
class Group:
    """Checks of one stage with their names inside it; those that did not pass come first."""

    title: str
    checks: tuple[tuple[str, Check], ...]

    @property
    def passed(self) -> int:
        """How many passed."""
        return sum(check.outcome == "pass" for _, check in self.checks)

    @property
    def holds(self) -> bool:
        """Whether all passed."""
        return self.passed == len(self.checks)


def grouped(checks: Sequence[Check]) -> list[Group]:
    """Return groups in order of their first check. The verifier names a check ``stage: name`` or just ``name``."""
    found: dict[str, list[tuple[str, Check]]] = {}
    for check in checks:
        stage, colon, name = check.name.partition(": ")
        title = _TITLES.get(stage, stage) if colon else CHAIN
        found.setdefault(title, []).append((name if colon else check.name, check))
    return [
        Group(title, tuple(sorted(members, key=lambda member: member[1].outcome == "pass")))
        for title, members in found.items()
    ]


def observed_words(name: str, text: str) -> str:
    """Return what was required or observed: large byte counts made readable, digests cut to twelve digits."""
    text = re.sub(r"\bsha256:([0-9a-f]{12})[0-9a-f]{52}\b", r"sha256:\1…", text)
    if not name.endswith("_bytes"):
        return text
    number = re.search(r"\b[0-9]{4,16}\b", text)
    return f"{text} ({format_bytes(int(number.group()))})" if number else text
