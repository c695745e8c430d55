"""Lists as plain aligned tables: runs, failures, campaigns, and the events of a campaign."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from watcherml.report import plain
from watcherml.report.listing import CAMPAIGNS, EVENT_NAMES, FAILURES, RUNS, Column
from watcherml.report.safe import compact, one_line, shorten
from watcherml.report.units import format_time


def runs_table(rows: Sequence[Mapping[str, Any]], *, color: bool = False) -> str:
    """Return runs, one a line; rows of the view ``run_summary``."""
    return _table(RUNS, rows, "No runs are recorded here yet.", color)


def failures_table(rows: Sequence[Mapping[str, Any]], *, color: bool = False) -> str:
    """Return failures, one a line; rows of the view ``failure_summary``."""
    return _table(FAILURES, rows, "No failures are recorded here.", color)


def campaigns_table(rows: Sequence[Mapping[str, Any]], *, color: bool = False) -> str:
    """Return recovery campaigns, one a line; rows of the view ``campaign_summary``."""
    return _table(CAMPAIGNS, rows, "No recovery campaigns are recorded here.", color)


def events(rows: Sequence[Mapping[str, Any]], *, color: bool = False) -> str:
    """Return a campaign's events, one a line; rows hold ``seq``, ``at`` (seconds since 1970), ``type``, ``body``."""
    if not rows:
        return "No events are recorded here.\n"
    cells = [
        (str(row.get("seq", "")), format_time(row.get("at")), event_name(row), _body(row.get("body"))) for row in rows
    ]
    return plain.finish(plain.columns(("No.", "When", "What", "Detail"), cells, numeric=(0,), color=color))


def event_name(row: Mapping[str, Any]) -> str:
    """Return an event's type in words."""
    kind = str(row.get("type") or "")
    return EVENT_NAMES.get(kind, one_line(kind.replace("_", " "), 40))


def _body(body: Any) -> str:
    if not isinstance(body, Mapping):
        return "" if body is None else compact(body, 90)
    # A sentence is written for people; the other keys are for programs.
    if body.get("sentence"):
        return one_line(body["sentence"], 120)
    return shorten("  ".join(f"{one_line(key, 40)}={_value(value)}" for key, value in body.items()), 120)


def _value(value: Any) -> str:
    return one_line(value, 60) if isinstance(value, str) else compact(value, 60)


def _table(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], empty: str, color: bool) -> str:
    if not rows:
        return empty + "\n"
    cells = [[one_line(column.words(row), column.limit) for column in columns] for row in rows]
    tones = [[column.tone(row) if column.tone else None for column in columns] for row in rows]
    numeric = [index for index, column in enumerate(columns) if column.numeric]
    titles = [column.title for column in columns]
    return plain.finish(plain.columns(titles, cells, numeric=numeric, tones=tones, color=color))
