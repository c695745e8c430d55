"""A campaign as text: the ladder of its trials, and its verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.verdict import Verdict
from watcherml.report import plain, terms
from watcherml.report.after import next_step
from watcherml.report.changes import differences
from watcherml.report.checks import grouped, observed_words
from watcherml.report.glossary import label, meaning
from watcherml.report.ladder import Planned, Rung, planned, rungs
from watcherml.report.safe import json_text, shorten
from watcherml.report.units import format_bytes, format_count, format_seconds
from watcherml.report.words import CHECK_TONES, verdict_headline, verdict_tone


def text_progress(
    plan: RecoveryPlan, trials: Sequence[Mapping[str, Any]], lifecycle: str, sentence: str, *, color: bool = False
) -> str:
    """Return the trials so far and the stages to come; arguments as for ``html_progress``."""
    started = rungs(trials, lifecycle)
    lines = [plain.bold(line, color) for line in plain.wrap(sentence or meaning("lifecycle", lifecycle))]
    lines += ["", *plain.pair("Campaign", label(lifecycle)), *plain.pair("Run", plan.source.run_id)]
    lines += plain.pair("Device", terms.device_sentence(plan.contract.device))
    lines += ["", *_ladder(plan, started, planned(plan, started, lifecycle), color)]
    return plain.finish(lines)


def text_verdict(
    verdict: Verdict,
    plan: RecoveryPlan,
    trials: Sequence[Mapping[str, Any]],
    standing: str = "on_record",
    *,
    color: bool = False,
) -> str:
    """Return a verdict as text; arguments as for ``html_verdict``."""
    headline = plain.wrap(verdict_headline(verdict, standing))
    lines = [plain.paint(line, verdict_tone(verdict, standing), color) for line in headline]
    if standing != "on_record":
        lines += plain.wrap(meaning("standing", standing))
    step = next_step(verdict, plan, standing)
    lines += plain.wrap(step) if step else []
    if verdict.device_kind == "simulated":
        lines += plain.wrap(terms.SIMULATED_NOTE)
    lines += plain.section("What changes", _change(verdict, plan), color)
    lines += _checks(verdict, color)
    lines += plain.section("Trials", _ladder(plan, rungs(trials), [], color) if trials else [], color)
    lines += plain.section("On record", _record(verdict), color)
    if verdict.config is not None:
        whole = plain.text_block(json_text(verdict.config), 2_000_000)
        lines += plain.section("The whole configuration, to copy", whole, color)
    return plain.finish(lines)


def _ladder(plan: RecoveryPlan, started: Sequence[Rung], coming: Sequence[Planned], color: bool) -> list[str]:
    if not started and not coming:
        return ["  No trial has started."]
    budget = plan.contract.device.budget_bytes
    titles = ("Stage", "Candidate", "Outcome", "Steps", "Peak", "", "Time")
    rows = [
        (
            label(rung.role),
            shorten(rung.candidate, 24),
            label(rung.outcome),
            format_count(rung.steps, "-"),
            format_bytes(rung.peak_bytes, "-"),
            plain.bar(rung.peak_bytes, budget, 10),
            format_seconds(rung.wall_s, "-"),
        )
        for rung in started
    ]
    tones = [(None, None, rung.tone, None, None, None, None) for rung in started]
    table = plain.columns(titles, rows, numeric=(3, 4, 6), tones=tones, color=color, indent="  ")
    lines = table[:1] if started else []
    for rung, line in zip(started, table[1:], strict=True):
        lines.append(line)
        lines += plain.wrap(rung.sentence, "      ", "      ", 400) if rung.sentence else []
        lines += [plain.paint(f"      | {shorten(line, 110)}", "quiet", color) for line in rung.log_tail]
    for stage in coming:
        lines.append(plain.paint(f"  {label(stage.role)}: {stage.sentence}", "quiet", color))
    if budget is not None and any(rung.peak_bytes is not None for rung in started):
        lines.append(f"  Bars show the peak in the {terms.device_words(plan)} of {format_bytes(budget)}.")
    return lines


def _change(verdict: Verdict, plan: RecoveryPlan) -> list[str]:
    if verdict.config is None:
        return []
    lines: list[str] = []
    for one in differences(plan.source.config, verdict.config):
        lines += plain.wrap(f"{one.path}: {one.before} → {one.after}", "    ", "  ", 400)
    chosen = next((one for one in plan.proposals if one.proposal_id == verdict.candidate_id), None)
    for key, value in terms.environment(chosen) if chosen else ():
        lines += plain.wrap(f"environment {key}={value}", "    ", "  ", 400)
    return lines or ["  Nothing."]


def _checks(verdict: Verdict, color: bool) -> list[str]:
    lines: list[str] = []
    for group in grouped(verdict.checks):
        title = f"{group.title[:1].upper()}{group.title[1:]}: {group.passed:,} of {len(group.checks):,} passed"
        lines += plain.wrap(title, "    ", "  ", 200)
        for name, check in group.checks:
            mark = plain.paint(f"{check.outcome:<7}", CHECK_TONES[check.outcome], color)
            words = f"{name}: required {observed_words(check.name, check.required)}"
            words += f", observed {observed_words(check.name, check.observed)}"
            first, *rest = plain.wrap(words, " " * 12, " " * 12, 600)
            lines += [f"    {mark} {first[12:]}", *rest]
    passed = sum(check.outcome == "pass" for check in verdict.checks)
    return plain.section(f"Checks: {passed:,} of {len(verdict.checks):,} passed", lines, color)


def _record(verdict: Verdict) -> list[str]:
    lines = plain.pair("Candidate", verdict.candidate_id or "")
    for run_id in verdict.confirmation_run_ids:
        lines += plain.pair("Confirmed by", run_id)
    return [
        *lines,
        *plain.pair("Acts on a cause", verdict.cause_addressed),
        *plain.pair("Reason code", verdict.reason_code),
        *plain.pair("Device", label(verdict.device_kind)),
        *plain.pair("Campaign", verdict.campaign_id),
        *plain.pair("Digest", verdict.digest),
    ]
