"""Every text face, under one name."""

from __future__ import annotations

from watcherml.report.tables import campaigns_table, events, failures_table, runs_table
from watcherml.report.text_campaign import text_progress, text_verdict
from watcherml.report.text_compare import text_compare
from watcherml.report.text_failure import text_failure
from watcherml.report.text_plan import text_plan
from watcherml.report.text_run import text_run

__all__ = [
    "text_compare",
    "text_failure",
    "text_plan",
    "text_progress",
    "text_verdict",
    "text_run",
    "runs_table",
    "failures_table",
    "campaigns_table",
    "events",
]
