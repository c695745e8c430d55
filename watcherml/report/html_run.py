"""A recorded run as HTML: what became of it, its curves, its memory, its configuration and provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from watcherml.report import markup, timeline
from watcherml.report.curves import Curve, curves, sample_curves
from watcherml.report.html_evidence import data_tree
from watcherml.report.markup import Html
from watcherml.report.safe import json_text
from watcherml.report.terms import SIMULATED_NOTE
from watcherml.report.units import format_bytes, format_count, format_seconds, format_time, plural
from watcherml.report.words import RUN_TONES, device_of, exactness_words, run_headline

MAX_CHARTS = 12
_FACTS = ("git", "environment", "machine", "dataset", "framework")


def html_run(
    row: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]] = (),
    samples: Sequence[Mapping[str, Any]] = (),
    artifacts: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return a run's page. Keys are those of the store's rows; times are seconds since 1970, sizes bytes.

    ``row``: run_id, project, status, end_reason, started_at, ended_at, last_step, config, facts, device.
    ``metrics``: name, step, value, at. ``samples``: at, rss_bytes, device_allocated_bytes,
    device_reserved_bytes. ``artifacts``: path, size_bytes, sha256.
    """
    return markup.root(
        _head(row),
        _facts(row),
        _curves("Metrics", curves(metrics)),
        _curves("Memory", sample_curves(samples, device_of(row).get("budget_bytes"))),
        _artifacts(artifacts),
        _provenance(row),
    )


def html_curves(title: str, found: Sequence[Curve]) -> str:
    """Return curves beside those of a run's page, drawn alike; empty for none."""
    return markup.root(_curves(title, found)) if found else ""


def _head(row: Mapping[str, Any]) -> Html:
    status = str(row.get("status") or "")
    kicker = markup.join([markup.escape("Run"), markup.shown(row.get("project") or "no project")], " · ")
    reason = markup.shown(row.get("end_reason") or "", markup.SENTENCE_LIMIT)
    note = markup.quiet(markup.escape(SIMULATED_NOTE)) if device_of(row).get("kind") == "simulated" else markup.EMPTY
    return markup.banner(RUN_TONES.get(status, "quiet"), kicker, markup.escape(run_headline(row)), reason, note)


def _facts(row: Mapping[str, Any]) -> Html:
    started, ended = row.get("started_at"), row.get("ended_at")
    took = format_seconds(ended - started) if started is not None and ended is not None else "–"
    device = device_of(row)
    name = device.get("name") or device.get("kind") or "none recorded"
    size = "" if device.get("budget_bytes") is None else f", {format_bytes(device['budget_bytes'])}"
    return markup.pairs(
        [
            ("Run", markup.mono(row.get("run_id") or "?")),
            ("Started", markup.escape(format_time(started))),
            ("Ended", markup.escape(format_time(ended, "–"))),
            ("Took", markup.escape(took)),
            ("Last step", markup.escape(format_count(row.get("last_step"), "–"))),
            ("Not exact", markup.shown(exactness_words(row), markup.SENTENCE_LIMIT)),
            ("Device", Html(f"{markup.shown(name)}{markup.escape(size)}")),
        ]
    )


def _curves(title: str, found: Sequence[Curve]) -> Html:
    if not found:
        return markup.EMPTY
    parts = [_curve(curve) for curve in found[:MAX_CHARTS]]
    if len(found) > MAX_CHARTS:
        rest = markup.bullets(Html(f"{markup.shown(curve.name)}: {_figures(curve)}") for curve in found[MAX_CHARTS:])
        parts.append(markup.fold(markup.escape(f"{len(found) - MAX_CHARTS:,} more series"), rest))
    return markup.section(title, *parts)


def _curve(curve: Curve) -> Html:
    head = Html(f"<div>{markup.strong(markup.shown(curve.name))} {_figures(curve)}</div>")
    chart = timeline.line_chart(
        [timeline.Series(curve.points)], level=curve.level, title=f"{curve.name} over {curve.axis}"
    )
    if chart is None:
        return markup.paragraph(head)
    span = f"{curve.words(chart.y_low)} to {curve.words(chart.y_high)}"
    alt = f"{curve.name} over {curve.axis}: {curve.words(curve.last)} at the end, {span}"
    image = markup.picture(chart.svg, alt, 84)
    flat = chart.y_low == chart.y_high
    heights = ["", curve.words(chart.y_high), ""] if flat else [curve.words(chart.y_high), curve.words(chart.y_low)]
    ends = [curve.x_words(chart.x_low), curve.x_words(chart.x_high)]
    return Html(f'<div style="margin:4px 0 14px 0">{head}{_framed(image, heights, ends)}</div>')


def _framed(image: Html, heights: Sequence[str], ends: Sequence[str]) -> Html:
    """Labels in HTML around the image, where they keep their size and the page's colour."""
    small = "font-size:11px;opacity:.72;line-height:1.2"
    spread = "display:flex;justify-content:space-between"
    column = f"{small};{spread};flex-direction:column;width:76px;text-align:right;padding:0 8px 0 0"
    left = "".join(f"<span>{markup.escape(text)}</span>" for text in heights)
    foot = "".join(f"<span>{markup.escape(text)}</span>" for text in ends)
    beside = f'<div style="{column}">{left}</div><div style="flex:1;min-width:0">{image}</div>'
    return Html(
        f'<div style="display:flex">{beside}</div><div style="{small};{spread};margin:1px 0 0 84px">{foot}</div>'
    )


def _figures(curve: Curve) -> Html:
    parts = [f"last {curve.words(curve.last)}"]
    if curve.low is not None and curve.high is not None:
        parts.append(f"{curve.words(curve.low)} to {curve.words(curve.high)}")
    parts.append(plural(len(curve.points), "point"))
    if curve.level is not None:
        parts.append(f"dashed: budget {curve.words(curve.level)}")
    text = markup.quiet(markup.escape(", ".join(parts)))
    if not curve.unusual:
        return text
    return Html(f"{text} {markup.chip(f'{curve.unusual:,} not finite', 'bad', 'NaN or infinity; ticks on the edge')}")


def _artifacts(artifacts: Sequence[Mapping[str, Any]]) -> Html:
    if not artifacts:
        return markup.EMPTY
    rows = [
        (
            markup.mono(one.get("path") or "?", 160),
            markup.escape(format_bytes(one.get("size_bytes"))),
            markup.mono(str(one.get("sha256") or "")[:12]),
        )
        for one in artifacts
    ]
    return markup.section("Artifacts", markup.grid(("File", "Size", "SHA-256"), rows, numeric=(1,), wrapped=(0,)))


def _provenance(row: Mapping[str, Any]) -> Html:
    facts = row.get("facts")
    known: Mapping[str, Any] = facts if isinstance(facts, Mapping) else {}
    config = markup.block(markup.escape_lines(json_text(row.get("config") or {}), markup.BLOCK_LIMIT))
    parts = [markup.fold(markup.strong(markup.escape("Configuration")), config)]
    for key in [*_FACTS, *(key for key in known if key not in _FACTS)]:
        title = markup.strong(markup.shown(str(key).replace("_", " ").capitalize()))
        if key in known and known[key] not in (None, {}, []):
            parts.append(markup.fold(title, data_tree(known[key])))
        else:
            parts.append(markup.paragraph(markup.quiet(Html(f"{title}: not recorded"))))
    return markup.section("Configuration and provenance", *parts)
