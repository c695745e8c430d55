"""A run while it goes on, as HTML: one line a metric and a kind of memory, each with a small curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from watcherml.report import markup, timeline
from watcherml.report.curves import Curve, curves, sample_curves
from watcherml.report.markup import Html
from watcherml.report.terms import SIMULATED_NOTE
from watcherml.report.units import format_bytes, format_number, format_seconds, plural
from watcherml.report.words import RUN_TONES, device_of, run_headline

MOST_ROWS = 12
_CURVE_WIDTH, _CURVE_HEIGHT = 180, 28  # pixels
_NAME_WIDTH, _NUMBER_WIDTH = 210, 90  # -1.23457e-05 takes 88


def html_live_head(row: Mapping[str, Any], last: Mapping[str, float], now: float) -> str:
    """Return what is going on, with the values logged last, which are newer than the curves.

    ``row`` is a run's row of the store, ``now`` seconds since 1970.
    """
    status = str(row.get("status") or "")
    kicker = markup.join([markup.escape("Run"), markup.shown(row.get("project") or "no project")], " · ")
    started = row.get("started_at")
    going_on = None if started is None or status != "running" else max(0.0, now - started)
    state = "" if going_on is None else f"Going on for {format_seconds(going_on)}."
    reason = markup.shown(row.get("end_reason") or "", markup.SENTENCE_LIMIT)
    note = markup.quiet(markup.escape(SIMULATED_NOTE)) if device_of(row).get("kind") == "simulated" else markup.EMPTY
    values = [
        Html(f"{markup.shown(name, 40)} {markup.strong(markup.escape(format_number(value)))}")
        for name, value in list(last.items())[:MOST_ROWS]
    ]
    return markup.root(
        markup.banner(
            RUN_TONES.get(status, "quiet"), kicker, markup.escape(run_headline(row)),
            markup.escape(state), reason, markup.join(values, " · "), note,
        )
    )  # fmt: skip


def html_live_curves(
    row: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]],
    samples: Sequence[Mapping[str, Any]],
    gpus: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return the curves so far: metrics, then memory with units.

    ``metrics`` and ``samples`` as for ``html_run``; ``gpus`` have at, gpu_index, used_bytes, own_bytes, total_bytes.
    """
    budget = device_of(row).get("budget_bytes")
    memory = [*sample_curves(samples, budget), *gpu_curves(gpus)]
    logged = curves(metrics)
    parts = [small_table("Metric", logged[:MOST_ROWS]), small_table("Memory", memory[:MOST_ROWS])]
    if len(logged) > MOST_ROWS:
        rest = f"{plural(len(logged) - MOST_ROWS, 'more metric')}; `%watcher inspect` shows all."
        parts.insert(1, markup.paragraph(markup.quiet(markup.escape(rest))))
    if not logged and not memory:
        parts = [markup.paragraph(markup.quiet(markup.escape("Nothing has been logged or measured yet.")))]
    return markup.root(*parts)


def gpu_curves(gpus: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """Return what this process and everybody holds of each GPU over time, in bytes, as NVML says it."""
    start = min((one["at"] for one in gpus), default=0.0)
    found = []
    for index in sorted({one["gpu_index"] for one in gpus}):
        mine = [one for one in gpus if one["gpu_index"] == index]
        total = next((one.get("total_bytes") for one in reversed(mine)), None)
        for key, words in (("own_bytes", "this process"), ("used_bytes", "everybody")):
            points = tuple((float(one["at"] - start), float(one[key])) for one in mine if one.get(key) is not None)
            if points:
                near = total is not None and 4 * max(y for _, y in points) >= total
                name = f"GPU {index}, {words}"
                found.append(Curve(name, "time", points, format_bytes, float(total) if near and total else None))
    return found


def small_table(title: str, found: Sequence[Curve]) -> Html:
    """Return curves one a line with their last, lowest and highest value; tables of several titles line up."""
    if not found:
        return markup.EMPTY
    heads = [title, "", "Last", "Lowest", "Highest", "Of"]
    if all(curve.level is None for curve in found):
        heads.pop()
    rows = [
        (
            _wide(_NAME_WIDTH, markup.shown(curve.name, 60)),
            _small(curve),
            # A number on two lines reads as two numbers.
            *(_wide(_NUMBER_WIDTH, markup.escape(words), "nowrap") for words in _figures(curve)[: len(heads) - 2]),
        )
        for curve in found
    ]
    return markup.grid(heads, rows, numeric=range(2, len(heads)))


def _figures(curve: Curve) -> tuple[str, str, str, str]:
    low, high = curve.low, curve.high
    return (
        curve.words(curve.last),
        "–" if low is None else curve.words(low),
        "–" if high is None else curve.words(high),
        "–" if curve.level is None else curve.words(curve.level),
    )


def _wide(pixels: int, body: Html, wrapping: str = "normal") -> Html:
    # Widths on cells are not honoured; on a box inside they are.
    return Html(f'<div style="width:{pixels}px;white-space:{wrapping}">{body}</div>')


def _small(curve: Curve) -> Html:
    chart = timeline.line_chart([timeline.Series(curve.points)], level=curve.level, title=curve.name)
    if chart is None:
        return markup.EMPTY
    alt = f"{curve.name} over {curve.axis}: {curve.words(curve.last)} at the end"
    picture = markup.picture(chart.svg, alt, _CURVE_HEIGHT)
    unusual = markup.chip("not finite", "bad", f"{curve.unusual:,} values are NaN or infinite") if curve.unusual else ""
    return Html(f'<div style="width:{_CURVE_WIDTH}px">{picture}</div>{unusual}')
