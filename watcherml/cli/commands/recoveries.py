"""``watcher recoveries``: list recovery campaigns, newest first."""

from __future__ import annotations

import argparse

from watcherml.cli.console import Console
from watcherml.cli.lists import list_face
from watcherml.cli.shared import add_format, as_json, count, deliver, storage_of
from watcherml.errors import UsageError

STATUSES = ("verified", "not_recovered", "stopped", "integration_error")
DEFAULT_LIMIT = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--project", metavar="NAME", help="only this project")
    parser.add_argument("--status", choices=STATUSES, help="only this status")
    parser.add_argument("--verified", action="store_true", help="only verified ones")
    parser.add_argument("--limit", type=count, default=DEFAULT_LIMIT, metavar="N", help="default: %(default)s")
    add_format(parser)


def run(values: argparse.Namespace, console: Console) -> int:
    """List the campaigns; an empty list where there is no store."""
    from watcherml.api import data
    from watcherml.report.documents import campaigns_document
    from watcherml.report.tables import campaigns_table

    if values.verified and values.status not in (None, "verified"):
        raise UsageError("--verified", expected="no other --status beside it", got=values.status)
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
