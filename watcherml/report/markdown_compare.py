"""Two runs beside each other as Markdown, and the part of a capsule that speaks of earlier runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from watcherml.report.markdown_text import escape
from watcherml.report.neighbours import (
    SCORE_NOTE,
    SHOWN,
    changed_sentence,
    comparison_headline,
    lines_of,
    parts_words,
    side_words,
    similar_words,
    since_sentence,
)
from watcherml.report.units import plural

if TYPE_CHECKING:
    from watcherml.forensics.neighbours import Comparison, Difference, Neighbours

MOST_SHOWN = 200


def markdown_compare(found: Comparison) -> str:
    """Return a comparison as Markdown; nothing in the values renders."""
    lines = [f"# {escape(comparison_headline(found), 800)}", "", f"- First: {escape(side_words(found, 'first'))}"]
    lines.append(f"- Second: {escape(side_words(found, 'second'))}")
    lines += [
        f"- Failure of {escape(one.run_id)}: {escape(one.headline, 600)}"
        for one in (found.first, found.second)
        if one.headline
    ]
    return "\n".join([*lines, "", "## What differs", "", *changes(found.difference, MOST_SHOWN)]) + "\n"


def earlier_runs(neighbours: Neighbours | None) -> list[str]:
    """Return the sections of a capsule about earlier runs; nothing where nobody looked."""
    if neighbours is None:
        return []
    lines = ["", "## Since it last worked", "", escape(since_sentence(neighbours), 1_000)]
    if neighbours.nearest is not None:
        near = neighbours.nearest
        lines += ["", *changes(near.difference, SHOWN), "", escape(f"Nearness {near.score} of 100: ", 40)]
        lines[-1] += escape(parts_words(near.parts), 1_000)
    if neighbours.similar:
        lines += ["", "## Similar earlier failures", ""]
        lines += [f"- {escape(one.run_id)}: {escape(similar_words(one), 900)}" for one in neighbours.similar]
    return lines


def changes(difference: Difference, most: int) -> list[str]:
    """Return the first changes as a table, and what could not be compared."""
    shown = lines_of(difference.changes[:most])
    if not shown:
        lines = [escape(changed_sentence(difference, "Between the two"))]
    else:
        lines = ["| Suspicion | What | Before | After | Of |", "|---:|---|---|---|---|"]
        lines += [
            f"| {one.suspicion} | {escape(one.path)} | {escape(one.before)} | {escape(one.after)} | {one.area} |"
            for one in shown
        ]
    rest = len(difference.changes) + difference.left_out - len(shown)
    if rest:
        lines += ["", f"… and {plural(rest, 'less suspicious change')}."]
    if shown:
        lines += ["", SCORE_NOTE]
    if difference.unknown:
        lines += ["", escape("Not compared: " + "; ".join(difference.unknown), 600)]
    return lines
