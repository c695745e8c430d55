"""Earlier runs in words: what changed since it last worked, and failures like this one. Shared by every face."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from watcherml.report.safe import compact, one_line, shorten
from watcherml.report.units import format_count, format_number, format_time, plural
from watcherml.report.words import value_words

if TYPE_CHECKING:
    from watcherml.forensics.neighbours import Change, Comparison, Difference, Neighbours, Part, Similar

AREA_NAMES = {
    "config": "configuration", "code": "code", "cells": "notebook cell", "data": "data", "packages": "package",
    "hardware": "hardware", "metrics": "metric",
}  # fmt: skip
# From these points on a change is worth being named in a sentence.
WORTH_NAMING = 40
STRONG = 60
SHOWN = 8
SCORE_NOTE = "The order says where to look first; it is judgement by a fixed table, not evidence."


class Line(NamedTuple):
    """One change in words."""

    area: str
    path: str
    before: str
    after: str
    suspicion: int


def lines_of(changes: Sequence[Change]) -> list[Line]:
    """Return changes in words, in their order; an absent value is ``(none)``."""
    return [
        Line(AREA_NAMES[one.area], one_line(one.path, 120), _side(one, "before"), _side(one, "after"), one.suspicion)
        for one in changes
    ]


def since_sentence(neighbours: Neighbours | None) -> str:
    """Return when it last worked and what to look at first; empty if nobody looked."""
    if neighbours is None:
        return ""
    if neighbours.problem:
        return one_line(neighbours.problem, 500)
    near = neighbours.nearest
    if near is None:
        if neighbours.successes_looked_at:
            return "No earlier success of this project is like this run."
        return "No earlier run of this project succeeded, so there is nothing to compare with."
    text = f"It last worked in run {one_line(near.run_id, 96)} ({format_time(near.started_at)})"
    return f"{text}. {changed_sentence(near.difference, 'Since then')}"


def changed_sentence(difference: Difference, since: str, *, failed: bool = True) -> str:
    """Return the most suspicious changes as one sentence; ``failed`` tells whether a failure judged them."""
    count = len(difference.changes) + difference.left_out
    if not count:
        return f"{since} nothing that was recorded has changed."
    # A metric is an effect; it stands in the table and not in the sentence.
    causes = [one for one in difference.changes if one.area != "metrics"]
    named = [one for one in lines_of(causes) if one.suspicion >= WORTH_NAMING][:3]
    if not named:
        text = f"{since} {plural(count, 'fact')} changed"
        return f"{text}, none of them suspicious for a failure like this." if failed else f"{text}."
    words = ", ".join(_arrow(one) for one in named)
    rest = count - len(named)
    return f"{since} changed: {words}" + (f", and {plural(rest, 'less suspicious fact')}." if rest else ".")


def first_change(neighbours: Neighbours | None) -> str:
    """Return the most suspicious change as a short sentence; empty where none is suspicious."""
    if neighbours is None or neighbours.nearest is None:
        return ""
    causes = [one for one in neighbours.nearest.difference.changes if one.area != "metrics"]
    strong = [one for one in lines_of(causes) if one.suspicion >= STRONG][:2]
    return f"Since it last worked: {', '.join(_arrow(one) for one in strong)}." if strong else ""


def like_sentence(neighbours: Neighbours | None) -> str:
    """Return how many failures like this one are on record; empty if there are none."""
    if neighbours is None or not neighbours.similar:
        return ""
    first = max(neighbours.similar, key=lambda one: one.score)
    text = f"Seen before: {plural(len(neighbours.similar), 'similar failure')}, most alike run {first.run_id}"
    return f"{text} ({first.score} of 100)."


def recovery_sentence(neighbours: Neighbours | None) -> str:
    """Return the verified recovery of the failure most like this one, with what it changed; empty if there is none."""
    known = [one for one in (neighbours.similar if neighbours else ()) if one.verified_campaign_id]
    if not known:
        return ""
    first = max(known, key=lambda one: one.score)
    changes = f", which changed {one_line(first.verified_changes, 300)}" if first.verified_changes else ""
    return (
        f"A verified recovery exists for a similar failure ({first.score} of 100, run {one_line(first.run_id, 96)}):"
        f" campaign {one_line(first.verified_campaign_id or '', 128)}{changes}."
    )


def similar_words(one: Similar) -> str:
    """Return one similar failure on a line: how alike, when, and what became of it."""
    origin = ", recorded elsewhere" if one.origin == "imported" else ""
    text = f"{one.score} of 100, {format_time(one.created_at)}, project {one_line(one.project, 60)}{origin}"
    if one.resolution:
        text += f"; resolved: {one_line(one.resolution, 300)}"
    if one.verified_campaign_id:
        text += f"; recovered and verified: `watcher recovery {one_line(one.verified_campaign_id, 128)}`"
    elif one.campaign_id:
        text += f"; its recovery: `watcher recovery {one_line(one.campaign_id, 128)}`"
    return text


def parts_words(parts: Sequence[Part]) -> str:
    """Return a score's parts as ``config 40/50 (8 of 10 values are the same), ...``."""
    return ", ".join(
        f"{one_line(one.name, 40)} {one.points}/{one.possible} ({one_line(one.says, 120)})" for one in parts
    )


def comparison_headline(found: Comparison) -> str:
    """Return what differs between two runs and what to look at first."""
    pair = f"{one_line(found.first.run_id, 96)} ({found.first.status}) → {one_line(found.second.run_id, 96)}"
    words = changed_sentence(found.difference, "From the first to the second", failed=bool(found.judged_by))
    return f"{pair} ({found.second.status}). {words}"


def side_words(found: Comparison, which: str) -> str:
    """Return one side of a comparison on a line."""
    one = found.first if which == "first" else found.second
    origin = {"imported": ", recorded elsewhere", "0.1": ", recorded by WatcherML 0.1"}.get(one.origin, "")
    step = "" if one.last_step is None else f", last step {format_count(one.last_step)}"
    return f"{one.run_id}: {one.status}, started {format_time(one.started_at)}{step}{origin}"


def _arrow(one: Line) -> str:
    return f"{shorten(one.path, 60)} {shorten(one.before, 40)} → {shorten(one.after, 40)}"


def _side(change: Change, which: str) -> str:
    absent = change.kind == ("added" if which == "before" else "removed")
    value = getattr(change, which)
    if absent:
        return "(none)"
    key = change.path.rpartition(".")[2].rpartition(" ")[2]
    if change.area in ("hardware", "data") and isinstance(value, (int, float)) and not isinstance(value, bool):
        return value_words("size_bytes" if key == "bytes" else key, value)
    if change.area == "metrics" and isinstance(value, float):
        return format_number(value)
    if isinstance(value, str) and change.area != "config":
        return one_line(value, 160)
    return compact(value, 160)
