"""Rows of a store as a browser gets them: words and tones, so that it has to know nothing of what they mean.

The interfaces of ``extension/src/api.ts`` name the same keys; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from watcherml.api.glance import glance
from watcherml.report.glossary import label
from watcherml.report.listing import CAMPAIGNS, FAILURES, RUNS, Column
from watcherml.report.safe import one_line
from watcherml.report.units import format_seconds, plural

if TYPE_CHECKING:
    from watcherml.store.storage import Storage

MOST_ROWS = 10
_SENTENCE = 400
_NAME = 400
Row = Mapping[str, Any]
Item = dict[str, Any]


def overview(storage: Storage) -> dict[str, Any]:
    """Return what the sidebar shows of a store: a sentence, and three lists with how many there are in all."""
    seen = glance(storage, MOST_ROWS)
    return {
        "exists": storage.exists,
        "sentence": _sentence(seen.open_failures, seen.unfinished, seen.running, seen.run_total),
        "failures": {"total": seen.failure_total, "items": [_failure(row) for row in seen.failures]},
        "campaigns": {"total": seen.campaign_total, "items": [campaign(row) for row in seen.campaigns]},
        "runs": {"total": seen.run_total, "items": [_run(row) for row in seen.runs]},
    }


def _sentence(open_failures: int, unfinished: int, running: int, runs: int) -> str:
    if not runs:
        return "Nothing is recorded yet."
    parts = [plural(open_failures, "open failure")] if open_failures else []
    parts += [plural(unfinished, "unfinished campaign")] if unfinished else []
    parts += [f"{plural(running, 'run')} going on"] if running else []
    return f"{', '.join(parts)}." if parts else "No failure is open."


def _failure(row: Row) -> Item:
    return _item(
        "failure", row["run_id"], row, _column(FAILURES, "State"), label(str(row["failure_class"])), row["sentence"],
        at=row["created_at"], marked=row["resolved_at"] is None,
    )  # fmt: skip


def _run(row: Row) -> Item:
    told = label(str(row["failure_class"])) if row["failure_class"] else ""
    if not told and row["duration_s"] is not None:
        step = "" if row["last_step"] is None else f", step {row['last_step']:,}"
        told = f"{format_seconds(row['duration_s'])}{step}"
    return _item("run", row["run_id"], row, _column(RUNS, "Status"), told, "", at=row["started_at"])


def campaign(row: Row) -> Item:
    """Return a campaign with its ``lifecycle`` as a browser gets it."""
    state = str(row["lifecycle"])
    trials = plural(int(row["trials"] or 0), "trial")
    found = _item(
        "campaign", row["campaign_id"], row, _column(CAMPAIGNS, "Status"), trials, row["sentence"],
        at=row["created_at"], marked=state == "running",
    )  # fmt: skip
    return {**found, "stoppable": state == "running"}


def _item(
    kind: str, name: object, row: Row, status: Column, detail: str, sentence: object, *, at: float, marked: bool = False
) -> Item:
    return {
        "kind": kind,
        "id": str(name),
        "name": one_line(row.get("title") or name, _NAME),
        "project": one_line(row.get("project") or "", _NAME),
        "status": status.words(row),
        "tone": "quiet" if status.tone is None else status.tone(row),
        "detail": one_line(detail, _SENTENCE),
        "sentence": one_line(sentence or "", _SENTENCE),
        "at": float(at),
        "marked": marked,
        "stoppable": False,
    }


def _column(columns: tuple[Column, ...], title: str) -> Column:
    return next(one for one in columns if one.title == title)
