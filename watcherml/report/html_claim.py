"""A campaign that WatcherML 0.1 ran, as HTML: what it claimed, which cannot be checked again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from watcherml.report import markup
from watcherml.report.glossary import label, meaning
from watcherml.report.ladder import rungs
from watcherml.report.units import format_count, format_seconds


def html_claim(row: Mapping[str, Any], trials: Sequence[Mapping[str, Any]]) -> str:
    """Return a claim of 0.1; ``row`` is one of ``campaign_summary``, ``trials`` are rows of ``trial_summary``."""
    status = str(row.get("status") or "")
    kicker = markup.join([markup.escape("Recovery campaign"), markup.escape("recorded by WatcherML 0.1")], " · ")
    head = markup.banner(
        "warn",
        kicker,
        markup.shown(row.get("sentence") or label(status), markup.SENTENCE_LIMIT),
        markup.escape(meaning("standing", status)),
    )
    facts = markup.pairs(
        [
            ("Campaign", markup.mono(row.get("campaign_id") or "?")),
            ("Source run", markup.mono(row.get("source_run_id") or "?")),
            ("Reason code", markup.mono(row.get("reason_code") or "?")),
        ]
    )
    lines = [
        (
            markup.shown(label(one.role), 40),
            markup.mono(one.candidate),
            markup.chip(label(one.outcome), one.tone),
            markup.escape(format_count(one.steps, "–")),
            markup.escape(format_seconds(one.wall_s, "–")),
        )
        for one in rungs(trials)
    ]
    table = markup.grid(("Stage", "Candidate", "Outcome", "Steps", "Ran"), lines, numeric=(3, 4), wrapped=(1,))
    return markup.root(head, facts, markup.section("Trials", table) if lines else markup.EMPTY)
