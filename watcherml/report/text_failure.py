"""A failure capsule as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watcherml.forensics.capsule import Capsule, Diagnosis
from watcherml.report import plain
from watcherml.report.advice import next_step, without_next
from watcherml.report.before import memory_before, metrics_before
from watcherml.report.glossary import label
from watcherml.report.memory import Picture, picture
from watcherml.report.safe import json_text, shorten
from watcherml.report.terms import SIMULATED_NOTE, device_sentence
from watcherml.report.text_compare import earlier_runs
from watcherml.report.text_run import figures
from watcherml.report.units import format_bytes, format_time
from watcherml.report.words import (
    CAUSE_LISTS,
    cause_words,
    class_words,
    config_of,
    is_about_memory,
    release_words,
    when_words,
)

_MARKS = {
    "allocated": "#", "reserved_unallocated": "=", "own_other": "+", "foreign": "o", "other": "o", "in_use": "#",
    "free": ".",
}  # fmt: skip
_BAR = 60
MOST_EXCLUDED = 4
MOST_METRICS = 12


def text_failure(
    capsule: Capsule, release: Mapping[str, Any] | None = None, *, title: str | None = None, color: bool = False
) -> str:
    """Return a capsule as text; the first line says what happened and what to do next.

    ``release`` tells what was given back after the failure: ``forensics.release.Release.to_data()``; ``title`` is what
    a person called the run.
    """
    lines = [plain.bold(line, color) for line in plain.wrap(without_next(capsule.headline, capsule))]
    lines += [plain.bold(line, color) for line in plain.wrap(next_step(capsule)) if line]
    if capsule.device.kind == "simulated":
        lines += plain.wrap(SIMULATED_NOTE)
    lines += ["", *_facts(capsule, title)]
    if is_about_memory(capsule):
        lines += plain.section("Memory", _memory(capsule), color)
        lines += plain.section(f"Diagnosis: {label(capsule.diagnosis.status)}", _diagnosis(capsule.diagnosis), color)
    before = [*memory_before(capsule), *metrics_before(capsule)[:MOST_METRICS]]
    lines += plain.section("Up to the failure", figures(before, color), color)
    lines += earlier_runs(capsule.neighbours, color)
    lines += plain.section("Memory given back", _release(release), color)
    counted = capsule.completeness
    lines += plain.section(f"Evidence: {counted.present} of {counted.total} captured", _evidence(capsule), color)
    if capsule.failure.traceback:
        lines += plain.section("Traceback", plain.text_block(capsule.failure.traceback, 20_000), color)
    config = config_of(capsule)
    if config is not None:
        lines += plain.section("Configuration", plain.text_block(json_text(config), 20_000), color)
    return plain.finish(lines)


def _facts(capsule: Capsule, title: str | None) -> list[str]:
    failure = capsule.failure
    return [
        *plain.pair("Run", f"{capsule.run_id} ({shorten(capsule.project, 80)})"),
        *plain.pair("Name", title or ""),
        *plain.pair("Failure", class_words(capsule)),
        *plain.pair("Where", failure.where or "not known"),
        *plain.pair("When", when_words(capsule)),
        *plain.pair("Device", device_sentence(capsule.device) if is_about_memory(capsule) else ""),
        *plain.pair("Error", f"{failure.exception_type}: {failure.message}"),
        *plain.pair("Captured", format_time(capsule.created_at)),
    ]


def _memory(capsule: Capsule) -> list[str]:
    drawn = picture(capsule)
    if drawn is None:
        figures = {key: value for key, value in capsule.memory.to_data().items() if key.endswith("_bytes")}
        return [
            line
            for key, value in figures.items()
            if value is not None
            for line in plain.pair(label(key[: -len("_bytes")]), format_bytes(value))
        ]
    lines = plain.wrap(drawn.sentence, "  ", "  ")
    lines.append(f"  {_bar(drawn)}")
    for part in drawn.parts:
        lines.append(f"    {_MARKS[part.key]} {part.name}: {format_bytes(part.bytes)}")
    if drawn.requested_bytes is not None:
        lines.append(f"    R requested: {format_bytes(drawn.requested_bytes)}")
    return lines


def _bar(drawn: Picture) -> str:
    """The device to scale, closed by ``|`` at the limit, and the request from where free memory began."""
    limit = max(drawn.limit_bytes, 1)
    marks, end = "", 0.0
    for part in drawn.parts:
        end += part.bytes
        marks += _MARKS[part.key] * (min(round(_BAR * end / limit), _BAR) - len(marks))
    request = ""
    if drawn.requested_bytes:
        start = min(round(_BAR * drawn.used_bytes / limit), _BAR)
        length = min(max(1, round(_BAR * drawn.requested_bytes / limit)), _BAR // 3)
        request = f"\n  {' ' * (start + 1)}{'R' * length}"
    return f"[{marks:<{_BAR}}|{request}"


def _diagnosis(diagnosis: Diagnosis) -> list[str]:
    lines = plain.wrap(diagnosis.sentence, "  ", "  ")
    for key, title in CAUSE_LISTS:
        causes = getattr(diagnosis, key)
        if key == "excluded" and len(causes) > MOST_EXCLUDED:
            # A reason each for what it is not would push out of sight what it is; every other face has them.
            lines += plain.pair(title, "; ".join(f"{one.id} {one.name}" for one in causes), 3_000)
            continue
        for cause in causes:
            cited = f" ({', '.join(cause.evidence_ids)})" if cause.evidence_ids else ""
            lines += plain.pair(title, f"{cause_words(cause)}. {cause.sentence}{cited}")
    return lines


def _release(release: Mapping[str, Any] | None) -> list[str]:
    sentence, kept = release_words(release)
    lines = plain.wrap(sentence, "  ", "  ") if sentence else []
    for line in kept:
        lines += plain.pair("Still held", line)
    return lines


def _evidence(capsule: Capsule) -> list[str]:
    lines = []
    for piece in capsule.evidence:
        state = f"missing: {piece.reason}" if piece.status == "missing" else f"from {piece.source or 'the run'}"
        lines += plain.wrap(f"{piece.name}, {state}", " " * 10, f"  {piece.id:<8}", 300)
    return lines
