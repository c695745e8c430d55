"""``watcher inspect RUN_ID``: a run, and why it failed if it did."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from watcherml.cli.console import Console
from watcherml.cli.shared import add_format, as_json, command_line, deliver, storage_of
from watcherml.store.storage import Storage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("run_id", metavar="RUN_ID", help="as `watcher runs` lists it")
    add_format(parser, "markdown", "html")


MOST_POINTS = 2_000


def run(values: argparse.Namespace, console: Console) -> int:
    """Show the capsule of a failed run, else the run itself; JSON holds both."""
    from watcherml.api import data
    from watcherml.report import documents, html, markdown, text
    from watcherml.report.page import page
    from watcherml.report.text_archive import imported_note
    from watcherml.report.text_failures import text_marked
    from watcherml.store.resolution import resolution

    storage = storage_of(values)
    row = data.run(storage, values.run_id)
    capsule = data.capsule(storage, values.run_id)
    # A program gets every point; a page has no room for a million.
    most = None if values.format == "json" else MOST_POINTS
    metrics = storage.get_metrics(values.run_id, max_points=most)
    samples, artifacts = storage.runs.samples(values.run_id, max_points=most), storage.runs.artifacts(values.run_id)
    document = documents.run_document(row, metrics, samples, artifacts)
    document["failure"] = None if capsule is None else documents.failure_document(capsule)
    marked: dict[str, Any] = {} if capsule is None else resolution(storage, values.run_id).to_row()
    document["resolution"] = marked or None
    deliver(
        values,
        console,
        {
            "text": lambda color: (
                imported_note(row)
                + (
                    text.text_run(row, metrics, samples, artifacts, color=color)
                    if capsule is None
                    else text.text_failure(capsule, title=row["title"], color=color)
                )
                + text_marked(marked)
            ),
            "markdown": lambda _color: (
                imported_note(row)
                + (markdown.markdown_run(row, metrics) if capsule is None else markdown.markdown_failure(capsule))
            ),
            "html": lambda _color: page(
                values.run_id,
                html.html_run(row, metrics, samples, artifacts) if capsule is None else html.html_failure(capsule),
            ),
            "json": as_json(document),
        },
    )
    if capsule is not None and values.format == "text" and values.output is None:
        following = _next(values, storage, row, capsule.failure.class_, marked)
        if following:
            console.say(f"\n{following}")
    return 0


def _next(
    values: argparse.Namespace, storage: Storage, row: Mapping[str, Any], failure_class: str, marked: Mapping[str, Any]
) -> str:
    """Return what to do about a failure; empty for one that is somebody else's or done with."""
    from watcherml.api import data

    if storage.is_older or row["origin"] != "here":
        return ""
    name = values.run_id
    recoverable = data.is_recoverable(failure_class)
    campaigns = data.campaigns(storage, source_run_id=name) if recoverable else []
    for one in campaigns:
        if one["status"] == "verified":
            return f"A recovery was verified: {command_line(values, 'recovery', one['campaign_id'])}"
    if marked["resolved_at"] is not None:
        return ""
    if not recoverable:
        return f"Next: once it is dealt with, {command_line(values, 'resolve', name)}"
    for one in campaigns:
        if one["lifecycle"] == "running":
            return f"A recovery is going on: {command_line(values, 'recovery', one['campaign_id'], '--watch')}"
    prepare = command_line(values, "prepare-recovery", name, "--entrypoint", "MODULE:FUNCTION")
    return f"Next, without running anything yet: {prepare}"
