"""A campaign as HTML while it goes on: the ladder of its trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from watcherml.protocol.plan import RecoveryPlan
from watcherml.report import markup, palette, terms
from watcherml.report.glossary import label, meaning
from watcherml.report.ladder import Planned, Rung, planned, rungs
from watcherml.report.markup import Html
from watcherml.report.palette import Tone
from watcherml.report.units import format_bytes, format_seconds, plural

_LIFECYCLE_TONES: dict[str, Tone] = {"prepared": "quiet", "running": "calm", "interrupted": "warn", "ended": "quiet"}


def html_progress(plan: RecoveryPlan, trials: Sequence[Mapping[str, Any]], lifecycle: str, sentence: str) -> str:
    """Return the trials so far and the stages to come.

    ``trials`` are rows of the view ``trial_summary`` (peak in bytes, wall time in seconds); ``lifecycle`` is
    ``prepared``, ``running``, ``interrupted`` or ``ended``; ``sentence`` says what is going on now.
    """
    started = rungs(trials, lifecycle)
    kicker = markup.join(
        [markup.escape("Recovery campaign"), markup.shown(label(lifecycle), 40), source_words(plan)], " · "
    )  # fmt: skip
    headline = markup.shown(sentence or meaning("lifecycle", lifecycle), markup.SENTENCE_LIMIT)
    head = markup.banner(_LIFECYCLE_TONES.get(lifecycle, "quiet"), kicker, headline, _simulated(plan))
    return markup.root(head, ladder_table(plan, started, planned(plan, started, lifecycle)))


def source_words(plan: RecoveryPlan) -> Html:
    """Return which run the campaign is for."""
    return Html(f"for run {markup.mono(plan.source.run_id)}")


def _simulated(plan: RecoveryPlan) -> Html:
    if plan.contract.device.kind != "simulated":
        return markup.EMPTY
    return markup.quiet(markup.escape(terms.SIMULATED_NOTE))


def ladder_table(plan: RecoveryPlan, started: Sequence[Rung], coming: Sequence[Planned]) -> Html:
    """Return started trials, two rows each (figures, sentence), and the stages to come, greyed."""
    rows = [_rung_rows(plan, rung) for rung in started] + [_planned_row(stage) for stage in coming]
    if not rows:
        return markup.paragraph(markup.quiet(markup.escape("No trial has started.")))
    budget = plan.contract.device.budget_bytes
    heads = ("Stage", "Outcome", "Peak", "Ran")
    scale = f"Bars show the peak in the {terms.device_words(plan)} of {format_bytes(budget)}."
    note = markup.paragraph(markup.quiet(markup.escape(scale))) if budget is not None else markup.EMPTY
    head = "".join(f'<th style="{_cell(index)};{_HEAD}">{markup.escape(name)}</th>' for index, name in enumerate(heads))
    # Fixed, so that a long word in a sentence cannot push the outcomes out of sight.
    style = "border-collapse:collapse;table-layout:fixed;width:100%;margin:0;border:none;font-size:13px"
    style += ";min-width:396px;max-width:760px"
    return Html(
        f'<div style="overflow-x:auto"><table style="{style}"><thead style="border:none">'
        f'<tr style="background:transparent">{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>{note}'
    )


_WIDTHS = (0, 116, 78, 78)  # pixels, less the space to the right; the first column takes what is left
_COLUMNS = len(_WIDTHS)
_HEAD = f"font-weight:600;opacity:.75;border-bottom:{palette.RULE}"


def _cell(column: int) -> str:
    last = column == _COLUMNS - 1
    align, right = ("right", 0) if last else ("left", 8)
    style = f"text-align:{align};vertical-align:top;border:none;background:transparent;line-height:1.5"
    width = f";width:{_WIDTHS[column]}px" if column else ""
    return f"{style}{width};padding:7px {right}px 0 0;white-space:{'normal' if column == 0 else 'nowrap'}"


def _rung_rows(plan: RecoveryPlan, rung: Rung) -> Html:
    budget = plan.contract.device.budget_bytes
    share = f"{format_bytes(rung.peak_bytes)} of {format_bytes(budget)}"
    bar = markup.gauge(rung.peak_bytes, budget, share, length=70)
    role = markup.strong(markup.hint(markup.shown(label(rung.role), 40), meaning("role", rung.role)))
    candidate = markup.mono(rung.candidate) if rung.proposal_id else markup.quiet(markup.escape(rung.candidate))
    steps = "–" if rung.steps is None else plural(rung.steps, "step")
    cells = (
        f"<div>{role}</div>{candidate}",
        markup.chip(label(rung.outcome), rung.tone, meaning("outcome", rung.outcome)),
        f"{markup.escape(format_bytes(rung.peak_bytes, '–'))}{bar}",
        f"<div>{markup.escape(steps)}</div>{markup.escape(format_seconds(rung.wall_s, '–'))}",
    )
    row = "".join(f'<td style="{_cell(index)}">{value}</td>' for index, value in enumerate(cells))
    low = "text-align:left;border:none;background:transparent;line-height:1.5;padding:0 0 6px 0;white-space:normal"
    text = Html(f"{markup.shown(rung.sentence, markup.SENTENCE_LIMIT)}{html_log(rung)}")
    below = f'<td colspan="{_COLUMNS}" style="{low};opacity:.8;border-bottom:{palette.RULE}">{text}</td>'
    return Html(f'<tr style="background:transparent">{row}</tr><tr style="background:transparent">{below}</tr>')


def html_log(rung: Rung, title: str = "") -> Html:
    """Return the last lines that a trial printed as a fold, open where they have to explain it; empty for none."""
    lines = rung.log_tail or rung.log_end
    if not lines:
        return markup.EMPTY
    words = markup.escape(f"{title or 'What it printed'}, last {plural(len(lines), 'line')}")
    opened = bool(rung.log_tail) or rung.outcome == "running"
    return markup.fold(words, markup.block(markup.escape_lines("\n".join(lines), 5_000)), opened=opened)


def _planned_row(stage: Planned) -> Html:
    style = _cell(0) + ";opacity:.55"
    role = markup.hint(markup.escape(label(stage.role)), meaning("role", stage.role))
    return Html(
        f'<tr style="background:transparent"><td style="{style}">{role}</td>'
        f'<td colspan="{_COLUMNS - 1}" style="{style}">{markup.escape(stage.sentence)}</td></tr>'
    )
