"""``watcher recoveries``: list recovery campaigns, newest first."""

from __future__ import annotations

import argparse

from watcherml.cli.console import Console
from watcherml.cli.lists import list_face
from watcherml.cli.shared import add_format, as_json, deliver, storage_of
from watcherml.options import add_list_flags, check_verified

STATUSES = ("verified", "not_recovered", "stopped", "integration_error")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_list_flags(parser, STATUSES)
    parser.add_argument("--verified", action="store_true", help="only verified ones")
    add_format(parser)


def run(values: argparse.Namespace, console: Console) -> int:
    """List the campaigns; an empty list where there is no store."""
    from watcherml.api import data
    from watcherml.report.documents import campaigns_document
    from watcherml.report.tables import campaigns_table

    check_verified(values)
    storage = storage_of(values)
    rows = data.campaigns(
        storage,
        project=values.project,
        status=values.status,
        verified=values.verified,
        limit=values.limit,
    )
    text = list_face(values, console, storage, rows, campaigns_table, "recovery campaigns")
    deliver(values, console, {"text": text, "json": as_json(campaigns_document(rows))})
    return 0
