"""``Neighbours``: what the store knew of earlier runs when a run failed: failures like it, and when it last worked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from watcherml.errors import InvalidValue
from watcherml.sealed.fields import Bound, Count, Json, Later, Line, Name, RunId, Steps, Timestamp
from watcherml.sealed.record import Record
from watcherml.sealed.shown import Shown

Area = Literal["config", "code", "cells", "data", "packages", "hardware", "metrics"]
Points = Annotated[int, Bound(0, 100)]


@dataclass(frozen=True, slots=True, eq=False)
class Part(Record):
    """One row of a score: how many of its points two runs earned. ``says`` gives both sides' values in words."""

    name: Name
    points: Points
    possible: Points
    says: Line

    def check(self) -> None:
        """No part earns more than it can."""
        if self.points > self.possible:
            raise InvalidValue("Part.points", expected=f"at most {self.possible}", got=str(self.points))


@dataclass(frozen=True, slots=True, eq=False)
class Change(Record):
    """One fact that differs. ``added`` and ``removed`` ones have no value before or after (null).

    ``suspicion`` is 0 to 100: how often a change like this is behind a failure like this, by the row ``rule`` of
    ``suspicion.ROWS``. It is an order to look in, not evidence.
    """

    area: Area
    path: Line
    kind: Literal["changed", "added", "removed"]
    before: Json
    after: Json
    suspicion: Points
    rule: Name


@dataclass(frozen=True, slots=True, eq=False)
class Difference(Record):
    """What differs between two runs, most suspicious first.

    ``left_out`` counts the least suspicious changes that are not listed; ``unknown`` says what could not be compared.
    """

    changes: tuple[Change, ...]
    left_out: Count
    unknown: tuple[Line, ...]
    rules_version: Count


@dataclass(frozen=True, slots=True, eq=False)
class Similar(Record):
    """An earlier failure of the same class with its score of 100 and what it is made of.

    ``resolution`` is what a person noted, ``campaign_id`` the last recovery that was prepared for it; both may be
    empty. ``origin`` is ``imported`` for somebody else's run. ``verified_campaign_id`` is a recovery of it that this
    store has verified, and ``verified_changes`` what that changed.
    """

    run_id: RunId
    project: Name
    created_at: Timestamp
    headline: Line
    score: Points
    parts: tuple[Part, ...]
    origin: Literal["here", "imported"]
    resolution: Line
    campaign_id: Line
    verified_campaign_id: Annotated[Line | None, Later()] = None
    verified_changes: Annotated[Line | None, Later()] = None


@dataclass(frozen=True, slots=True, eq=False)
class Nearest(Record):
    """The earlier success that is most like the failed run, and what has changed since."""

    run_id: RunId
    started_at: Timestamp
    last_step: Steps | None
    score: Points
    parts: tuple[Part, ...]
    difference: Difference


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours(Record):
    """Similar failures and the nearest success, as of the moment of the failure.

    Of the failures those with a verified recovery come first, then the best.

    ``failures_looked_at`` and ``successes_looked_at`` say how many earlier runs were compared; ``problem`` why the
    search could not be made, else it is empty.
    """

    similar: tuple[Similar, ...] = ()
    nearest: Nearest | None = None
    failures_looked_at: Count = 0
    successes_looked_at: Count = 0
    score_version: Count = 0
    problem: Line = ""


@dataclass(frozen=True, slots=True, eq=False)
class Compared(Record):
    """One of the two runs of a comparison; ``origin`` is ``0.1`` for one that WatcherML 0.1 recorded."""

    run_id: RunId
    project: Name
    status: Name
    origin: Literal["here", "imported", "0.1"]
    started_at: Timestamp
    last_step: Steps | None
    failure_class: Line
    headline: Line


@dataclass(frozen=True, slots=True, eq=False)
class Comparison(Shown, Record):
    """Two runs and what differs from the first to the second, most suspicious first.

    Suspicion is judged by the failure of the second run, else by that of the first (``judged_by`` is its run id).
    """

    KIND: ClassVar[str] = "watcherml.comparison"

    first: Compared
    second: Compared
    judged_by: Line
    difference: Difference
