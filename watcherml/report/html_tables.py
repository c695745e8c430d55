"""Lists of runs, failures and campaigns as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from watcherml.report import markup
from watcherml.report.listing import CAMPAIGNS, FAILURES, RUNS, Column
from watcherml.report.markup import Html


def html_runs_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return runs, one a line; rows of the view ``run_summary``."""
    return _table(RUNS, rows, "No runs are recorded here yet.")


def html_failures_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return failures, one a line; rows of the view ``failure_summary``."""
    return _table(FAILURES, rows, "No failures are recorded here.")


def html_campaigns_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return recovery campaigns, one a line; rows of the view ``campaign_summary``."""
    return _table(CAMPAIGNS, rows, "No recovery campaigns are recorded here.")


def _table(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], empty: str) -> str:
    if not rows:
        return markup.root(markup.paragraph(markup.escape(empty)))
    body = [[_value(column, row) for column in columns] for row in rows]
    right = [index for index, column in enumerate(columns) if column.numeric]
    wrapped = [index for index, column in enumerate(columns) if column.limit > 60]
    return markup.root(
        markup.grid([column.title for column in columns], body, numeric=right, wrapped=wrapped), wide=True
    )


def _value(column: Column, row: Mapping[str, Any]) -> Html:
    text = column.words(row)
    if column.tone is not None and text:
        return markup.chip(text, column.tone(row))
    limit = 400 if column.limit > 60 else column.limit
    return markup.mono(text, limit) if column.is_id else markup.shown(text, limit)
