"""``watcher delete RUN_ID|CAMPAIGN_ID``: take a run or a campaign out of the store, whole."""

from __future__ import annotations

import argparse

from watcherml.cli.console import Console
from watcherml.cli.removing import add_consent, remove
from watcherml.cli.shared import add_format, storage_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("id", metavar="RUN_ID|CAMPAIGN_ID", help="a run, or a campaign with its trials")
    parser.add_argument("--campaigns", action="store_true", help="also the campaigns that stand on the run")
    add_consent(parser)
    add_format(parser, output=False)


def run(values: argparse.Namespace, console: Console) -> int:
    """Say what would go, ask, delete it and give the space back."""
    from watcherml.api.removal import plan_deletion

    storage = storage_of(values)
    planned = plan_deletion(values.id, campaigns=values.campaigns, storage=storage)
    return remove(values, console, storage, planned)
