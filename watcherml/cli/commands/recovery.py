"""``watcher recovery CAMPAIGN_ID``: a campaign with its trials, events and verdict."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from watcherml.cli.console import Console
from watcherml.cli.shared import add_format, as_json, command_line, deliver, storage_of
from watcherml.store.storage import Storage

if TYPE_CHECKING:
    from watcherml.api.recover import Campaign


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("campaign_id", metavar="CAMPAIGN_ID", help="as `watcher recoveries` lists it")
    parser.add_argument("--watch", action="store_true", help="follow it to its end; Ctrl-C leaves it running")
    add_format(parser)


def run(values: argparse.Namespace, console: Console) -> int:
    """Show the campaign; a verdict is recomputed from the trials on record."""
    from watcherml.api import data
    from watcherml.api.recover import Campaign

    storage = storage_of(values)
    row = data.campaign(storage, values.campaign_id)
    if storage.is_older:
        _claimed(values, console, storage, row)
        return 0
    if row["lifecycle"] == "imported":
        from watcherml.cli.imported import show_imported

        show_imported(values, console, storage)
        return 0
    if values.watch and row["lifecycle"] == "running":
        _follow(values, console, Campaign(values.campaign_id, storage))
        row = data.campaign(storage, values.campaign_id)
    show = _ended if row["lifecycle"] == "ended" else _going_on
    show(values, console, storage, row)
    return 0


def _follow(values: argparse.Namespace, console: Console, campaign: Campaign) -> None:
    """Follow to the end; who presses Ctrl-C reads that only the watching ended."""
    from watcherml.cli.follow import Follower

    try:
        Follower(console, campaign).to_the_end()
    except KeyboardInterrupt:
        end_it = command_line(values, "stop", campaign.campaign_id)
        console.notice(f"Not watching any longer. {campaign.campaign_id} goes on; `{end_it}` ends it.")
        raise


def _claimed(values: argparse.Namespace, console: Console, storage: Storage, row: dict[str, Any]) -> None:
    """Show what WatcherML 0.1 says of a campaign; there is nothing to recompute."""
    from watcherml.api import data, older
    from watcherml.report.tables import events
    from watcherml.report.text_claim import text_claim

    trials, happened = storage.audit.trials(values.campaign_id), data.events(storage, values.campaign_id)

    def text(color: bool) -> str:
        return text_claim(row, trials, color=color) + _titled(events(happened, color=color))

    deliver(values, console, {"text": text, "json": as_json(older.claim(row, trials, happened), one_line=values.watch)})


def _ended(values: argparse.Namespace, console: Console, storage: Storage, row: dict[str, Any]) -> None:
    from watcherml.api import data
    from watcherml.api.result import RecoveryResult
    from watcherml.cli.verdicts import result_document
    from watcherml.report.text import events, text_verdict

    result = RecoveryResult.of_campaign(values.campaign_id, storage)
    trials, happened = data.trials(storage, values.campaign_id), data.events(storage, values.campaign_id)
    document = {**result_document(result, trials), "lifecycle": row["lifecycle"], "events": happened}
    deliver(
        values,
        console,
        {
            "text": lambda color: (
                text_verdict(result.verdict, result.chain.plan, trials, result.standing, color=color)
                + _titled(events(happened, color=color))
            ),
            "json": as_json(document, one_line=values.watch),
        },
    )


def _going_on(values: argparse.Namespace, console: Console, storage: Storage, row: dict[str, Any]) -> None:
    from watcherml.api import data
    from watcherml.report.documents import progress_document
    from watcherml.report.text import events, text_progress

    plan, trials, _ = data.campaign_parts(storage, values.campaign_id)
    happened = data.events(storage, values.campaign_id)
    state, sentence = row["lifecycle"], row["sentence"] or ""
    document = progress_document(plan, trials, state, sentence)
    document.update(campaign_id=values.campaign_id, status=row["status"], events=happened)
    deliver(
        values,
        console,
        {
            "text": lambda color: (
                text_progress(plan, trials, state, sentence, color=color) + _titled(events(happened, color=color))
            ),
            "json": as_json(document, one_line=values.watch),
        },
    )


def _titled(table: str) -> str:
    return f"\nEvents\n{table}"
