"""``watcher resume CAMPAIGN_ID``: take up a campaign that lost its supervisor, and follow it to its end."""

from __future__ import annotations

import argparse

from watcherml.cli.console import Console
from watcherml.cli.shared import add_format, storage_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("campaign_id", metavar="CAMPAIGN_ID", help="as `watcher recoveries` lists it")
    add_format(parser)


def run(values: argparse.Namespace, console: Console) -> int:
    """Resume within the budget that was confirmed when the campaign started; returns as ``recover`` does."""
    from watcherml.api import data
    from watcherml.api.recover import resume_recovery
    from watcherml.cli.follow import run_campaign
    from watcherml.cli.verdicts import deliver_result

    storage = storage_of(values)
    data.campaign(storage, values.campaign_id)
    campaign, result = run_campaign(
        console, lambda: resume_recovery(values.campaign_id, storage), "Ctrl-C at watcher resume"
    )
    return deliver_result(values, console, campaign, result)
