"""``watcher stop CAMPAIGN_ID``: end a running campaign; what it has stays on record."""

from __future__ import annotations

import argparse

from watcherml.cli.console import Console
from watcherml.cli.shared import add_format, as_json, command_line, deliver, storage_of

_PAUSE_SECONDS = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("campaign_id", metavar="CAMPAIGN_ID", help="as `watcher recoveries` lists it")
    parser.add_argument("--no-wait", action="store_true", help="only ask; do not wait for the end")
    add_format(parser)


def run(values: argparse.Namespace, console: Console) -> int:
    """Ask a running campaign to end and wait for it; one that does not run is left as it is.

    What an ended one came to is recomputed from its trials, as ``recovery`` does; raises ``TrustError`` for one whose
    records are damaged.
    """
    from watcherml.api import data
    from watcherml.api.recover import Campaign
    from watcherml.api.result import RecoveryResult
    from watcherml.report import plain

    storage = storage_of(values)
    before = data.campaign(storage, values.campaign_id)["lifecycle"]
    campaign = Campaign(values.campaign_id, storage)
    if before == "running":
        campaign.stop("watcher stop")
        if not values.no_wait:
            grace = campaign.plan.contract.budget.termination_grace_seconds or 0.0
            console.say(f"The running trial is given {grace:g} s to end.")
            campaign.wait(grace + _PAUSE_SECONDS)
    row = data.campaign(storage, values.campaign_id)
    document = {key: row[key] for key in ("campaign_id", "lifecycle", "status", "reason_code", "sentence")}
    # Its row is only what was noted down: what it is worth is computed again, but for 0.1, which nothing can compute.
    if row["lifecycle"] == "ended" and not storage.is_older:
        result = RecoveryResult.of_campaign(values.campaign_id, storage)
        document.update(status=result.status, reason_code=result.reason_code, sentence=result.sentence)
    sentence = _sentence(values, before, row["lifecycle"], document["sentence"] or "")
    text = plain.finish(plain.wrap(sentence))
    deliver(
        values, console, {"text": lambda _color: text, "json": as_json({"kind": "stop", "was": before, **document})}
    )
    return 0


def _sentence(values: argparse.Namespace, before: str, now: str, verdict: str) -> str:
    name = values.campaign_id
    if before == "ended":
        return f"Campaign {name} had ended already: {verdict}"
    if before == "interrupted":
        resume = command_line(values, "resume", name)
        return f"Campaign {name} has no supervisor any more; nothing is running. To take it up: {resume}"
    if before == "prepared":
        start = command_line(values, "resume", name)
        return f"Campaign {name} has not started; nothing is running. To start it: {start}"
    if now == "running":
        return f"Campaign {name} was asked to stop."
    return f"Campaign {name} ended: {verdict}"
