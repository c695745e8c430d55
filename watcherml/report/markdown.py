"""A failure capsule or a run as Markdown, for an issue or a pull request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from watcherml.forensics.capsule import Capsule
from watcherml.report.advice import next_step
from watcherml.report.curves import curves
from watcherml.report.glossary import label
from watcherml.report.markdown_compare import earlier_runs
from watcherml.report.markdown_text import escape
from watcherml.report.memory import picture
from watcherml.report.safe import json_text, many_lines
from watcherml.report.terms import SIMULATED_NOTE, device_sentence
from watcherml.report.units import format_bytes, format_count, format_time
from watcherml.report.words import (
    CAUSE_LISTS,
    cause_words,
    class_words,
    config_of,
    device_of,
    is_about_memory,
    release_words,
    run_headline,
    when_words,
)


def markdown_failure(capsule: Capsule, release: Mapping[str, Any] | None = None) -> str:
    """Return a capsule as Markdown; ``release`` as for ``html_failure``. Nothing in the values renders."""
    failure = capsule.failure
    lines = [f"# {escape(capsule.headline, 600)}", ""]
    if next_step(capsule):
        lines += [f"**{escape(next_step(capsule), 600)}**", ""]
    if capsule.device.kind == "simulated":
        lines += [f"> {SIMULATED_NOTE}", ""]
    lines += _table(
        [
            ("Run", capsule.run_id),
            ("Project", capsule.project),
            ("Failure", class_words(capsule)),
            ("Where", failure.where or "not known"),
            ("When", when_words(capsule)),
            ("Device", device_sentence(capsule.device)),
            ("Error", f"{failure.exception_type}: {failure.message}"),
            ("Captured", format_time(capsule.created_at)),
            ("Capsule", capsule.digest),
        ]
    )
    if is_about_memory(capsule):
        lines += ["", "## Memory", "", *_memory(capsule)]
        lines += ["", f"## Diagnosis: {label(capsule.diagnosis.status)}", "", *_diagnosis(capsule)]
    lines += earlier_runs(capsule.neighbours)
    sentence, kept = release_words(release)
    if sentence or kept:
        lines += ["", "## Memory given back", "", escape(sentence, 2_000), "", *(f"- {escape(line)}" for line in kept)]
    lines += ["", f"## Evidence: {capsule.completeness.present} of {capsule.completeness.total} captured", ""]
    for piece in capsule.evidence:
        state = f"missing: {piece.reason}" if piece.status == "missing" else f"from {piece.source or 'the run'}"
        lines.append(f"- {escape(piece.id)} {escape(piece.name)}, {escape(state, 400)}")
    if failure.traceback:
        lines += ["", "## Traceback", "", *_fenced(many_lines(failure.traceback, 20_000), "text")]
    config = config_of(capsule)
    if config is not None:
        lines += ["", "## Configuration", "", *_fenced(many_lines(json_text(config), 60_000), "json")]
    return "\n".join(lines) + "\n"


def markdown_run(row: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return a run as Markdown; arguments as for ``html_run``."""
    device = device_of(row)
    lines = [f"# {escape(run_headline(row), 600)}", ""]
    if device.get("kind") == "simulated":
        lines += [f"> {SIMULATED_NOTE}", ""]
    lines += _table(
        [
            ("Run", row.get("run_id") or "?"),
            ("Project", row.get("project") or "-"),
            ("Started", format_time(row.get("started_at"))),
            ("Ended", format_time(row.get("ended_at"), "-")),
            ("Last step", format_count(row.get("last_step"), "-")),
            ("End reason", row.get("end_reason") or "-"),
            ("Device", device.get("name") or device.get("kind") or "none recorded"),
        ]
    )
    found = curves(metrics)
    if found:
        lines += ["", "## Metrics", "", "| Metric | Last | Lowest | Highest | Points |", "|---|---:|---:|---:|---:|"]
        lines += [
            f"| {escape(one.name, 80)} | {one.words(one.last)} | {one.words(one.low)} | {one.words(one.high)}"
            f" | {len(one.points):,} |"
            for one in found
        ]
    lines += ["", "## Configuration", "", *_fenced(many_lines(json_text(row.get("config") or {}), 60_000), "json")]
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[tuple[str, object]]) -> list[str]:
    return ["| | |", "|---|---|", *(f"| {name} | {escape(value, 600)} |" for name, value in rows)]


def _memory(capsule: Capsule) -> list[str]:
    drawn = picture(capsule)
    if drawn is None:
        return ["The failure states no limit to compare with."]
    rows = [f"| {part.name} | {format_bytes(part.bytes)} |" for part in drawn.parts]
    rows.append(f"| {'allowed' if drawn.capped else 'limit'} | {format_bytes(drawn.limit_bytes)} |")
    if drawn.requested_bytes is not None:
        rows.append(f"| requested | {format_bytes(drawn.requested_bytes)} |")
    return [drawn.sentence, "", "| Memory | Size |", "|---|---:|", *rows]


def _diagnosis(capsule: Capsule) -> list[str]:
    lines = [escape(capsule.diagnosis.sentence, 2_000)]
    for key, title in CAUSE_LISTS:
        causes = getattr(capsule.diagnosis, key)
        if causes:
            lines += ["", f"**{title}**", ""]
        for cause in causes:
            cited = f" ({', '.join(cause.evidence_ids)})" if cause.evidence_ids else ""
            lines.append(f"- {escape(cause_words(cause))}: {escape(cause.sentence + cited, 2_000)}")
    return lines


def _fenced(text: str, language: str) -> list[str]:
    """A fence longer than any run of backticks inside, so that the text cannot close it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence + language, text.rstrip("\n"), fence]
