"""How a failure is marked, and what can be done about it, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watcherml.report import plain
from watcherml.report.glossary import label
from watcherml.report.units import format_time


def text_resolution(document: Mapping[str, Any], *, color: bool = False) -> str:
    """Return how a failure is marked now; a document as ``watcherml.api.resolve.Resolved.to_data`` makes it."""
    name = f"the failure of run {document['run_id']} ({label(document['failure_class'])})"
    if document["resolved"]:
        told = f"Marked {name} as resolved." if document["changed"] else f"{name} was marked already; nothing changed."
        lines = [plain.paint(line, "good", color) for line in plain.wrap(told[:1].upper() + told[1:], "  ", "")]
        lines += resolved_lines(document)
        if not document["changed"]:
            lines += plain.wrap("To mark it anew, open it first: --reopen.", "  ", "  ")
        return plain.finish(lines)
    told = f"Opened {name} again." if document["changed"] else f"{name} is open; nothing changed."
    lines = [plain.paint(line, "warn", color) for line in plain.wrap(told[:1].upper() + told[1:], "  ", "")]
    before = document["before"]
    if before:
        lines += plain.pair("It was", marked_words(before), 3_000)
    return plain.finish(lines)


def resolved_lines(row: Mapping[str, Any]) -> list[str]:
    """Return who resolved a failure, when and how; nothing for one that is open."""
    return [] if row.get("resolved_at") is None else plain.pair("Resolved", marked_words(row), 3_000)


def text_marked(row: Mapping[str, Any]) -> str:
    """Return an own part of a page that says how a failure was resolved; empty for one that is open."""
    lines = resolved_lines(row)
    return plain.finish(["", *lines]) if lines else ""


def marked_words(row: Mapping[str, Any]) -> str:
    """Return a mark in words: ``2026-11-30 07:02:49 UTC by ann: smaller batch``."""
    note = f": {row['resolved_note']}" if row.get("resolved_note") else ""
    return f"{format_time(row['resolved_at'])} by {row.get('resolved_by') or 'unknown'}{note}"
