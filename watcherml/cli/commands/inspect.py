"""``watcher inspect RUN_ID``: a run, and why it failed if it did."""

from __future__ import annotations

import argparse

from watcherml.cli.console import Console
from watcherml.cli.shared import add_format, as_json, deliver, storage_of


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

    storage = storage_of(values)
    row = data.run(storage, values.run_id)
    capsule = data.capsule(storage, values.run_id)
    # A program gets every point; a page has no room for a million.
    most = None if values.format == "json" else MOST_POINTS
    metrics = storage.get_metrics(values.run_id, max_points=most)
    samples, artifacts = storage.runs.samples(values.run_id, max_points=most), storage.runs.artifacts(values.run_id)
    document = documents.run_document(row, metrics, samples, artifacts)
    document["failure"] = None if capsule is None else documents.failure_document(capsule)
    deliver(
        values,
        console,
        {
            "text": lambda color: (
                imported_note(row)
                + (
                    text.text_run(row, metrics, samples, artifacts, color=color)
                    if capsule is None
                    else text.text_failure(capsule, color=color)
                )
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
    return 0
