"""A recorded run as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from watcherml.report import plain
from watcherml.report.curves import Curve, curves, sample_curves
from watcherml.report.palette import Tone
from watcherml.report.safe import flat, json_text, shorten
from watcherml.report.terms import SIMULATED_NOTE
from watcherml.report.units import format_bytes, format_count, format_seconds, format_time, plural
from watcherml.report.words import RUN_TONES, device_of, exactness_words, run_headline, value_words

_MAX_FACTS = 40


def text_run(
    row: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]] = (),
    samples: Sequence[Mapping[str, Any]] = (),
    artifacts: Sequence[Mapping[str, Any]] = (),
    *,
    color: bool = False,
) -> str:
    """Return a run as text; arguments as for ``html_run``."""
    tone: Tone = RUN_TONES.get(str(row.get("status")), "quiet")
    lines = [plain.paint(line, tone, color) for line in plain.wrap(run_headline(row))]
    if row.get("end_reason"):
        lines += plain.wrap(row["end_reason"])
    device = device_of(row)
    if device.get("kind") == "simulated":
        lines += plain.wrap(SIMULATED_NOTE)
    lines += ["", *_facts(row, device)]
    lines += plain.section("Metrics", figures(curves(metrics), color), color)
    lines += plain.section("Memory", figures(sample_curves(samples, device.get("budget_bytes")), color), color)
    lines += plain.section("Artifacts", _artifacts(artifacts, color), color)
    lines += plain.section("Configuration", plain.text_block(json_text(row.get("config") or {}), 20_000), color)
    lines += _provenance(row, color)
    return plain.finish(lines)


def _facts(row: Mapping[str, Any], device: Mapping[str, Any]) -> list[str]:
    started, ended = row.get("started_at"), row.get("ended_at")
    took = format_seconds(ended - started) if started is not None and ended is not None else "-"
    size = f", {format_bytes(device['budget_bytes'])}" if device.get("budget_bytes") is not None else ""
    return [
        *plain.pair("Name", row.get("title") or ""),
        *plain.pair("Project", row.get("project") or "-"),
        *plain.pair("Started", format_time(started)),
        *plain.pair("Ended", format_time(ended, "-")),
        *plain.pair("Took", took),
        *plain.pair("Last step", format_count(row.get("last_step"), "-")),
        *plain.pair("Not exact", exactness_words(row)),
        *plain.pair("Device", f"{device.get('name') or device.get('kind') or 'none recorded'}{size}"),
    ]


def figures(found: Sequence[Curve], color: bool) -> list[str]:
    """Return curves as a table: last, lowest and highest value, and how many points."""
    if not found:
        return []
    titles = ("Name", "Last", "Lowest", "Highest", "Points", "Not finite")
    rows = [
        (
            shorten(curve.name, 40),
            curve.words(curve.last),
            "-" if curve.low is None else curve.words(curve.low),
            "-" if curve.high is None else curve.words(curve.high),
            format_count(len(curve.points)),
            format_count(curve.unusual) if curve.unusual else "",
        )
        for curve in found
    ]
    return plain.columns(titles, rows, numeric=(1, 2, 3, 4, 5), color=color, indent="  ")


def _artifacts(artifacts: Sequence[Mapping[str, Any]], color: bool) -> list[str]:
    rows = [
        (
            shorten(str(one.get("path") or "?"), 60),
            format_bytes(one.get("size_bytes")),
            str(one.get("sha256") or "")[:12],
        )
        for one in artifacts
    ]
    return plain.columns(("File", "Size", "SHA-256"), rows, numeric=(1,), color=color, indent="  ") if rows else []


def _provenance(row: Mapping[str, Any], color: bool) -> list[str]:
    facts = row.get("facts")
    lines: list[str] = []
    alone: dict[str, Any] = {}
    for topic, value in facts.items() if isinstance(facts, Mapping) else ():
        if isinstance(value, Mapping):
            lines += plain.section(_title(topic), _leaves(value), color)
        else:
            alone[str(topic)] = value
    # A topic of one value needs no title of its own.
    return [*plain.section("Started as", _leaves(alone), color), *lines]


def _leaves(facts: Mapping[str, Any]) -> list[str]:
    packages = facts.get("packages")
    if isinstance(packages, Mapping):
        facts = {**facts, "packages": f"{plural(len(packages), 'package')}; `--format json` names each"}
    leaves, lines = flat(facts), []
    for key, leaf in leaves[:_MAX_FACTS]:
        lines += plain.wrap(f"{key}: {value_words(key.rpartition('.')[2], leaf)}", "    ", "  ", 300)
    return lines if len(leaves) <= _MAX_FACTS else [*lines, f"  … {len(leaves) - _MAX_FACTS:,} more"]


def _title(topic: object) -> str:
    return shorten(str(topic).replace("_", " ").capitalize(), 60)
