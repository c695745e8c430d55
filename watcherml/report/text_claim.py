"""A campaign that WatcherML 0.1 ran, as text: what it claimed, which cannot be checked again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from watcherml.report import plain
from watcherml.report.glossary import label, meaning
from watcherml.report.ladder import rungs
from watcherml.report.units import format_count, format_seconds


def text_claim(row: Mapping[str, Any], trials: Sequence[Mapping[str, Any]], *, color: bool = False) -> str:
    """Return a claim of 0.1; arguments as for ``html_claim``."""
    status = str(row.get("status") or "")
    lines = [plain.paint(line, "warn", color) for line in plain.wrap(str(row.get("sentence") or label(status)))]
    lines += plain.wrap(meaning("standing", status))
    lines += ["", *plain.pair("Campaign", row.get("campaign_id") or "?")]
    lines += plain.pair("Run", row.get("source_run_id") or "?")
    lines += plain.pair("Reason code", row.get("reason_code") or "?")
    rows = [
        (label(one.role), one.candidate, label(one.outcome), format_count(one.steps, "-"),
         format_seconds(one.wall_s, "-"))
        for one in rungs(trials)
    ]  # fmt: skip
    titles = ("Stage", "Candidate", "Outcome", "Steps", "Time")
    table = plain.columns(titles, rows, numeric=(3, 4), color=color, indent="  ") if rows else []
    return plain.finish([*lines, *plain.section("Trials", table, color)])
