"""A finished campaign: the verdict with its checks and the configuration to copy."""

from __future__ import annotations

from typing import Any

from watcherml.api import data
from watcherml.api.archive import imported_result, trial_rows
from watcherml.api.result import RecoveryResult
from watcherml.errors import NotFound
from watcherml.notebook.panels.base import Page, calls_html, calls_text, classed
from watcherml.report.html import html_verdict
from watcherml.report.html_claim import html_claim
from watcherml.report.text import text_verdict
from watcherml.report.text_claim import text_claim
from watcherml.store.storage import Storage

_IMPORTED = "imported"


def rows_of(result: RecoveryResult) -> list[dict[str, Any]]:
    """Return a result's trials as rows of ``trial_summary``, oldest first; on record here with what they printed."""
    if result.storage is None:
        return trial_rows(result.chain)
    return with_log_ends(result.storage, data.trials(result.storage, result.campaign_id))


def with_log_ends(storage: Storage, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of trials with ``log_end``, the last lines that each printed."""
    return [{**row, "log_end": data.log_end(storage, row["trial_id"])} for row in rows]


def verdict_text(result: RecoveryResult) -> str:
    """Return a result as text, the configuration to copy at its end."""
    return text_verdict(result.verdict, result.chain.plan, rows_of(result), result.standing)


def verdict_html(result: RecoveryResult) -> str:
    """Return a result as HTML under the class ``wml-verdict``."""
    return classed("wml-verdict", html_verdict(result.verdict, result.chain.plan, rows_of(result), result.standing))


def verdict_page(result: RecoveryResult) -> Page:
    """Return a result as a panel with nothing to click."""
    return Page(verdict_text(result), verdict_html(result))


def claim_page(storage: Storage, campaign_id: str | None) -> Page | None:
    """Return a campaign that this store cannot stand for, as what it is: imported, or recorded by WatcherML 0.1.

    None for a campaign of this store. Without an id the newest one counts, if the store has no other.
    Raises ``NotFound`` for an id that a store of 0.1 does not have.
    """
    if campaign_id is None:
        rows = data.campaigns(storage, limit=1)
        if not rows or not (storage.is_older or rows[0]["lifecycle"] == _IMPORTED):
            return None
        campaign_id = str(rows[0]["campaign_id"])
    if storage.is_older:
        row, trials = data.campaign(storage, campaign_id), storage.audit.trials(campaign_id)
        return Page(text_claim(row, trials), classed("wml-verdict", html_claim(row, trials)))
    try:
        row = data.campaign(storage, campaign_id)
    except NotFound:
        return None  # whoever asked says it
    return _imported_page(storage, campaign_id) if row["lifecycle"] == _IMPORTED else None


def _imported_page(storage: Storage, campaign_id: str) -> Page:
    result = imported_result(storage, campaign_id)
    if result is None:
        raise NotFound(f"no imported campaign {campaign_id[:100]!r}", remedy="`%watcher recoveries` lists them.")
    found = result.verdict, result.chain.plan, trial_rows(result.chain), _IMPORTED
    calls = [f"%watcher inspect {result.chain.plan.source.run_id}  # the run it was made for"]
    return Page(
        text_verdict(*found) + calls_text("Next", calls),
        classed("wml-verdict", html_verdict(*found), calls_html("Next", calls)),
    )
