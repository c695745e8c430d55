"""``watcher failures``: list failure capsules, newest first."""

from __future__ import annotations

import argparse

from watcherml.cli.console import Console
from watcherml.cli.lists import list_face
from watcherml.cli.shared import add_format, as_json, deliver, storage_of
from watcherml.options import add_list_flags


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_list_flags(parser)
    parser.add_argument("--unresolved", action="store_true", help="only those that nobody marked as resolved")
    add_format(parser)


def run(values: argparse.Namespace, console: Console) -> int:
    """List the failures; an empty list where there is no store."""
    from watcherml.api import data
    from watcherml.report.documents import failures_document
    from watcherml.report.tables import failures_table

    storage = storage_of(values)
    rows = data.failures(storage, project=values.project, unresolved=values.unresolved, limit=values.limit)
    text = list_face(values, console, storage, rows, failures_table, "failures")
    deliver(values, console, {"text": text, "json": as_json(failures_document(rows))})
    return 0
