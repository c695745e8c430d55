"""Every HTML face, under one name."""

from __future__ import annotations

from watcherml.report.html_campaign import html_progress
from watcherml.report.html_compare import html_compare
from watcherml.report.html_failure import html_failure
from watcherml.report.html_plan import html_plan
from watcherml.report.html_run import html_run
from watcherml.report.html_tables import html_campaigns_table, html_failures_table, html_runs_table
from watcherml.report.html_verdict import html_verdict

__all__ = [
    "html_compare",
    "html_failure",
    "html_plan",
    "html_progress",
    "html_verdict",
    "html_run",
    "html_runs_table",
    "html_failures_table",
    "html_campaigns_table",
]
