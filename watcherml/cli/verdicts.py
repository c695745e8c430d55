"""Delivering the result of a campaign, and the exit code that goes with it."""

from __future__ import annotations

import argparse
from typing import Any

from watcherml.api.recover import Campaign
from watcherml.api.result import RecoveryResult
from watcherml.cli.console import Console, json_line
from watcherml.cli.shared import command_line, deliver
from watcherml.report.documents import verdict_document
from watcherml.report.text import text_verdict

NOT_VERIFIED = 4


def deliver_result(values: argparse.Namespace, console: Console, campaign: Campaign, result: RecoveryResult) -> int:
    """Write the verdict as ``--format`` wants it; returns 0 for a verified recovery, else 4."""
    trials = campaign.trials()
    deliver(
        values,
        console,
        {
            "text": lambda color: text_verdict(result.verdict, result.chain.plan, trials, result.standing, color=color),
            # One line, because the events before it are lines too.
            "json": lambda _color: json_line(result_document(result, trials)),
        },
    )
    console.say(f"To see it again: {command_line(values, 'recovery', campaign.campaign_id)}")
    return 0 if result.verified else NOT_VERIFIED


def result_document(result: RecoveryResult, trials: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the verdict's document with the campaign's id."""
    document = verdict_document(result.verdict, result.chain.plan, trials, result.standing)
    return {**document, "campaign_id": result.campaign_id}
