"""``watcher compare RUN_A RUN_B``: what differs between two runs, most suspicious first."""

from __future__ import annotations

import argparse

from watcherml.cli.console import Console
from watcherml.cli.shared import add_format, as_json, deliver, storage_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("run_a", metavar="RUN_A", help="the one before, such as the last that worked")
    parser.add_argument("run_b", metavar="RUN_B", help="the one after, such as the one that failed")
    add_format(parser, "markdown", "html")


def run(values: argparse.Namespace, console: Console) -> int:
    """Show what changed from the first run to the second."""
    from watcherml.api.compare import compare
    from watcherml.report import documents, html, markdown_compare, page, text

    found = compare(storage_of(values), values.run_a, values.run_b)
    deliver(
        values,
        console,
        {
            "text": lambda color: text.text_compare(found, color=color),
            "markdown": lambda _color: markdown_compare.markdown_compare(found),
            "html": lambda _color: page.page(f"{values.run_a} and {values.run_b}", html.html_compare(found)),
            "json": as_json(documents.comparison_document(found)),
        },
    )
    return 0
