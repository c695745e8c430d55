"""``watcher runs``: list recorded runs, newest first."""

from __future__ import annotations

import argparse

from watcherml.cli.console import Console
from watcherml.cli.shared import add_format, as_json, count, deliver, storage_of

STATUSES = ("running", "success", "failed", "interrupted", "killed")
DEFAULT_LIMIT = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--project", metavar="NAME", help="only this project")
    parser.add_argument("--status", choices=STATUSES, help="only this status")
    parser.add_argument("--limit", type=count, default=DEFAULT_LIMIT, metavar="N", help="default: %(default)s")
    parser.add_argument("--trials", action="store_true", help="also the runs of recovery trials")
    add_format(parser)


def run(values: argparse.Namespace, console: Console) -> int:
    """List the runs; an empty list where there is no store."""
    from watcherml.report.documents import runs_document
    from watcherml.report.tables import runs_table

    # Not through api.data, which loads the whole campaign layer: this is the command that people type most.
    storage = storage_of(values)
    rows = []
    if storage.exists:
        storage.settle()
        role = None if values.trials else "user"
        rows = storage.runs.listing(project=values.project, status=values.status, role=role, limit=values.limit)
    deliver(
        values, console, {"text": lambda color: runs_table(rows, color=color), "json": as_json(runs_document(rows))}
    )
    return 0
