"""A finished campaign: the verdict with its checks and the configuration to copy."""

from __future__ import annotations

from typing import Any

from watcherml.api.result import RecoveryResult
from watcherml.notebook.panels.base import Page, classed
from watcherml.report.html import html_verdict
from watcherml.report.text import text_verdict


def trial_rows(result: RecoveryResult) -> list[dict[str, Any]]:
    """Return a result's trials as rows of the view ``trial_summary``, oldest first."""
    rows = []
    for number, trial in enumerate(result.trials, 1):
        request, done = trial.request, trial.result
        rows.append(
            {
                "seq": number,
                "trial_id": done.trial_id,
                "role": request.role,
                "proposal_id": request.proposal_id,
                "outcome": done.outcome,
                "steps": done.progress.steps,
                "peak_bytes": None if done.peak is None else done.peak.compared_bytes,
                "wall_s": done.wall_seconds,
                "sentence": done.sentence,
            }
        )
    return rows


def verdict_text(result: RecoveryResult) -> str:
    """Return a result as text, the configuration to copy at its end."""
    return text_verdict(result.verdict, result.chain.plan, trial_rows(result), result.standing)


def verdict_html(result: RecoveryResult) -> str:
    """Return a result as HTML under the class ``wml-verdict``."""
    return classed("wml-verdict", html_verdict(result.verdict, result.chain.plan, trial_rows(result), result.standing))


def verdict_page(result: RecoveryResult) -> Page:
    """Return a result as a panel with nothing to click."""
    return Page(verdict_text(result), verdict_html(result))
