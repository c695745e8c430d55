"""Campaigns that go on already: a cell that is run again must neither start a second one nor break the first."""

from __future__ import annotations

from collections.abc import Iterator

from watcherml.api import data
from watcherml.api.recover import Campaign, RecoveryPreparation
from watcherml.campaign.ledger import Ledger
from watcherml.errors import CampaignError, NotFound, StoreError
from watcherml.store.storage import Storage

_MOST_CAMPAIGNS = 20


def going_on(storage: Storage, source_run_id: str | None = None) -> Iterator[Campaign]:
    """Yield the campaigns that run or come up, newest first: of one failed run, or of all."""
    for row in data.campaigns(storage, source_run_id=source_run_id, limit=_MOST_CAMPAIGNS):
        campaign_id, state = row["campaign_id"], row["lifecycle"]
        # One that was prepared and got no process would be waited for in vain.
        if state == "running" or (state == "prepared" and Ledger(storage, campaign_id).comes_up()):
            yield Campaign(campaign_id, storage)


def note(preparation: RecoveryPreparation) -> str:
    """Return which campaign of the plan's run goes on and how it is followed; empty if none does."""
    try:
        found = next(going_on(preparation.storage, preparation.plan.source.run_id), None)
    except (NotFound, StoreError):  # a store that is gone is told where something is done with it
        return ""
    if found is None:
        return ""
    where, end = f"`%watcher recovery {found.campaign_id}`", f"`%watcher stop {found.campaign_id}`"
    return f"Campaign {found.campaign_id} of this run goes on already: {where} follows it, {end} ends it."


def refuse_second(preparation: RecoveryPreparation) -> None:
    """Raise ``CampaignError`` while a campaign of the same run goes on: trials of two would share one device."""
    there = note(preparation)
    if there:
        raise CampaignError(
            "a second campaign of this run", expected="one at a time, so that its trials have the device alone",
            got="another one that has not ended", remedy=there,
        )  # fmt: skip
