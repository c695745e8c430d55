"""Two runs beside each other as HTML, and the part of a capsule that speaks of earlier runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from watcherml.report import markup
from watcherml.report.markup import Html
from watcherml.report.neighbours import (
    SCORE_NOTE,
    SHOWN,
    STRONG,
    Line,
    changed_sentence,
    comparison_headline,
    lines_of,
    parts_words,
    side_words,
    similar_words,
    since_sentence,
)
from watcherml.report.palette import Tone
from watcherml.report.units import plural
from watcherml.report.words import RUN_TONES

if TYPE_CHECKING:
    from watcherml.forensics.neighbours import Comparison, Difference, Neighbours, Similar

MOST_SHOWN = 400
_FIRST = 20
_SOME = 30


def html_compare(found: Comparison) -> str:
    """Return a comparison as HTML: what to look at first, both runs, and the differences, most suspicious first."""
    tone: Tone = RUN_TONES.get(found.second.status, "calm")
    head = markup.banner(tone, markup.escape("Comparison"), markup.shown(comparison_headline(found), 800))
    rows = [("First", markup.shown(side_words(found, "first"), 300)),
            ("Second", markup.shown(side_words(found, "second"), 300))]  # fmt: skip
    rows += [
        (f"{name} failed", markup.shown(one.headline, markup.SENTENCE_LIMIT))
        for name, one in (("First", found.first), ("Second", found.second))
        if one.headline
    ]
    return markup.root(
        head, markup.pairs(rows), markup.section("What differs", changes(found.difference, _FIRST)), wide=True
    )


def earlier_runs(neighbours: Neighbours | None) -> Html:
    """Return the sections of a capsule about earlier runs; nothing where nobody looked."""
    if neighbours is None:
        return markup.EMPTY
    body = [markup.paragraph(markup.shown(since_sentence(neighbours), 800))]
    if neighbours.nearest is not None:
        body.append(changes(neighbours.nearest.difference, SHOWN))
        parts = markup.bullets(markup.shown(parts_words([one]), 300) for one in neighbours.nearest.parts)
        title = f"How near that run is: {neighbours.nearest.score} of 100"
        body.append(markup.fold(markup.quiet(markup.escape(title)), parts))
    made = markup.section("Since it last worked", *body)
    if neighbours.similar:
        alike = [_similar(one) for one in neighbours.similar]
        made = markup.join([made, markup.section("Similar earlier failures", *alike)])
    return made


def changes(difference: Difference, first: int) -> Html:
    """Return the first changes as a table, the others behind a click, and what could not be compared."""
    lines = lines_of(difference.changes[:MOST_SHOWN])
    if not lines:
        body = [markup.paragraph(markup.escape(changed_sentence(difference, "Between the two")))]
    else:
        body = [_table(lines[:first])]
    if lines[first:]:
        title = markup.quiet(markup.escape(plural(len(lines) - first, "less suspicious change")))
        body.append(markup.fold(title, _table(lines[first:])))
    rest = len(difference.changes) + difference.left_out - len(lines)
    if rest:
        body.append(markup.paragraph(markup.quiet(markup.escape(f"… and {plural(rest, 'more change')}, not listed"))))
    if lines:
        body.append(markup.paragraph(markup.quiet(markup.escape(SCORE_NOTE))))
    if difference.unknown:
        text = markup.shown("Not compared: " + "; ".join(difference.unknown), 400)
        body.append(markup.paragraph(markup.quiet(text)))
    return markup.join(body)


def _table(lines: list[Line]) -> Html:
    rows = [
        (
            markup.chip(str(one.suspicion), "bad" if one.suspicion >= STRONG else "warn" if one.suspicion >= _SOME else
                        "quiet"),
            markup.mono(one.path, 48),
            markup.mono(one.before, 44),
            markup.mono(one.after, 44),
            markup.escape(one.area),
        )
        for one in lines
    ]  # fmt: skip
    return markup.grid(("Suspicion", "What", "Before", "After", "Of"), rows, wrapped=(1, 2, 3))


def _similar(one: Similar) -> Html:
    head = markup.join([markup.mono(one.run_id), markup.shown(similar_words(one), 300)], " ")
    body = [markup.paragraph(markup.shown(one.headline, markup.SENTENCE_LIMIT))]
    body.append(markup.bullets(markup.shown(parts_words([part]), 300) for part in one.parts))
    return markup.fold(head, *body)
