"""Delivering the result of a campaign, and the exit code that goes with it."""

from __future__ import annotations

import argparse
from typing import Any

from watcherml.api.recover import Campaign
from watcherml.api.result import RecoveryResult
from watcherml.cli.console import Console
from watcherml.cli.shared import as_json, command_line, deliver
from watcherml.report import plain, terms
from watcherml.report.after import next_step
from watcherml.report.changes import differences
from watcherml.report.checks import grouped, observed_words
from watcherml.report.documents import verdict_document
from watcherml.report.safe import json_text
from watcherml.report.text import text_verdict
from watcherml.report.words import CHECK_TONES, verdict_headline, verdict_tone

NOT_VERIFIED = 4
_MOST_BROKEN = 12


def deliver_result(values: argparse.Namespace, console: Console, campaign: Campaign, result: RecoveryResult) -> int:
    """Write the verdict as ``--format`` wants it; returns 0 for a verified recovery, else 4."""
    trials = campaign.trials()

    def text(color: bool) -> str:
        if values.output is None:
            return summary(result, color=color)
        return text_verdict(result.verdict, result.chain.plan, trials, result.standing, color=color)

    deliver(values, console, {"text": text, "json": as_json(result_document(result, trials), one_line=True)})
    between = "" if values.output else "\n"  # after "Wrote FILE." it goes on
    console.say(f"{between}Every check and event: {command_line(values, 'recovery', campaign.campaign_id)}")
    return 0 if result.verified else NOT_VERIFIED


def result_document(result: RecoveryResult, trials: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the verdict's document with the campaign's id."""
    document = verdict_document(result.verdict, result.chain.plan, trials, result.standing)
    return {**document, "campaign_id": result.campaign_id}


def summary(result: RecoveryResult, *, color: bool = False) -> str:
    """Return what the verifier found in a screenful: counts of passed checks, and each check that did not pass."""
    verdict, standing = result.verdict, result.standing
    headline = plain.wrap(verdict_headline(verdict, standing), "  ", "  ")
    lines = [plain.paint(line, verdict_tone(verdict, standing), color) for line in headline]
    step = next_step(verdict, result.chain.plan, standing)
    lines += plain.wrap(step, "  ", "  ") if step else []
    if verdict.device_kind == "simulated":
        lines += plain.wrap(terms.SIMULATED_NOTE, "  ", "  ")
    lines.append(f"  Reason: {verdict.reason_code}")
    for group in grouped(verdict.checks):
        lines.append(f"  Checks of {group.title}: {group.passed:,} of {len(group.checks):,} passed")
        broken = [(name, one) for name, one in group.checks if one.outcome != "pass"]
        for name, one in broken[:_MOST_BROKEN]:
            mark = plain.paint(one.outcome, CHECK_TONES[one.outcome], color)
            required, observed = observed_words(one.name, one.required), observed_words(one.name, one.observed)
            first, *rest = plain.wrap(f"{name}: required {required}, observed {observed}", "      ", "      ", 400)
            lines += [f"    {mark} {first[6:]}", *rest]
    if verdict.config is not None:
        for change in differences(result.chain.plan.source.config, verdict.config):
            lines += plain.wrap(f"Change {change.path}: {change.before} → {change.after}", "    ", "  ", 400)
        lines += ["  The whole configuration, to copy:", *plain.text_block(json_text(verdict.config), 100_000)]
    return plain.finish(lines)
