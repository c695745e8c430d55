"""``watcher import FILE.zip``: bring an exported run into this store, as somebody else's claim."""

from __future__ import annotations

import argparse

from watcherml.cli.console import Console
from watcherml.cli.shared import add_format, as_json, deliver, storage_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("file", metavar="FILE.zip", help="made by `watcher export`")
    parser.add_argument("--as", dest="as_id", metavar="NEW_ID", help="the run's id in this store (default: its own)")
    add_format(parser, output=False)


def run(values: argparse.Namespace, console: Console) -> int:
    """Import the run whole or not at all; the same file again changes nothing."""
    from watcherml.api.archive import import_run
    from watcherml.report.text_archive import text_import

    document = import_run(values.file, storage=storage_of(values), as_id=values.as_id).to_data()
    deliver(values, console, {"text": lambda color: text_import(document, color=color), "json": as_json(document)})
    return 0
