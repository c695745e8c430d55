"""Two runs beside each other as text, and the part of a capsule that speaks of earlier runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from watcherml.report import plain
from watcherml.report.neighbours import (
    AREA_NAMES,
    SCORE_NOTE,
    SHOWN,
    Line,
    changed_sentence,
    comparison_headline,
    lines_of,
    parts_words,
    side_words,
    similar_words,
    since_sentence,
)
from watcherml.report.safe import shorten
from watcherml.report.units import plural

if TYPE_CHECKING:
    from watcherml.forensics.neighbours import Comparison, Difference, Neighbours

MOST_SHOWN = 60


def text_compare(found: Comparison, *, color: bool = False) -> str:
    """Return a comparison as text: what to look at first, both runs, and the differences, most suspicious first."""
    lines = [plain.bold(line, color) for line in plain.wrap(comparison_headline(found))]
    lines += ["", *plain.pair("First", side_words(found, "first")), *plain.pair("Second", side_words(found, "second"))]
    for one in (found.first, found.second):
        if one.headline:
            lines += plain.pair("Failure", f"{one.run_id}: {one.headline}")
    lines += plain.section("What differs", changes(found.difference, MOST_SHOWN, color), color)
    return plain.finish(lines)


def earlier_runs(neighbours: Neighbours | None, color: bool) -> list[str]:
    """Return the sections of a capsule about earlier runs; nothing where nobody looked."""
    if neighbours is None:
        return []
    body = plain.wrap(since_sentence(neighbours), "  ", "  ")
    if neighbours.nearest is not None:
        body += changes(neighbours.nearest.difference, SHOWN, color)
        parts = parts_words(neighbours.nearest.parts)
        body += plain.pair("Nearness", f"{neighbours.nearest.score} of 100: {parts}", 1_000)
    lines = plain.section("Since it last worked", body, color)
    body = []
    for one in neighbours.similar:
        body += plain.wrap(f"{one.run_id}: {similar_words(one)}", "    ", "  ", 900)
    return lines + plain.section("Similar earlier failures", body, color)


def _named(one: Line) -> str:
    # Most of what differs is configuration, and its paths speak for themselves.
    return one.path if one.area == AREA_NAMES["config"] else f"{one.area} {one.path}"


def changes(difference: Difference, most: int, color: bool) -> list[str]:
    """Return the first changes as a table, and what could not be compared."""
    rows = [
        (str(one.suspicion), shorten(_named(one), 36), shorten(one.before, 21), shorten(one.after, 21))
        for one in lines_of(difference.changes[:most])
    ]
    titles = ("Suspicion", "What", "Before", "After")
    lines = plain.columns(titles, rows, numeric=(0,), color=color, indent="  ") if rows else []
    if not rows:
        lines += plain.wrap(changed_sentence(difference, "Between the two"), "  ", "  ")
    rest = len(difference.changes) + difference.left_out - len(rows)
    if rest:
        lines += plain.wrap(f"… and {plural(rest, 'less suspicious change')}.", "  ", "  ")
    if rows:
        lines += plain.wrap(SCORE_NOTE, "  ", "  ")
    if difference.unknown:
        lines += plain.pair("Not compared", "; ".join(difference.unknown))
    return lines
