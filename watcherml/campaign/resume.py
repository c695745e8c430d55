"""Where a campaign stands, and taking up one that lost its supervisor."""

from __future__ import annotations

from typing import Literal

from watcherml.campaign import events, supervisor
from watcherml.campaign.ledger import Ledger
from watcherml.errors import CampaignError
from watcherml.store.storage import Storage

Lifecycle = Literal["prepared", "running", "interrupted", "ended"]


def lifecycle(storage: Storage, campaign_id: str) -> Lifecycle:
    """Return prepared, running, interrupted (its supervisor is gone) or ended."""
    row = storage.audit.campaign(campaign_id)
    if row["last_change"] == events.ENDED:
        return "ended"
    process = Ledger(storage, campaign_id).supervisor()
    if process is None:
        return "prepared"
    return "running" if storage.alive(process) else "interrupted"


def resume(storage: Storage, campaign_id: str) -> None:
    """Start a new supervisor for an interrupted campaign.

    Raises ``CampaignError`` if it is running or has ended.
    """
    state = lifecycle(storage, campaign_id)
    if state in ("running", "ended"):
        raise CampaignError(f"campaign {campaign_id} cannot be resumed", expected="an interrupted campaign", got=state,
                            remedy=f"`watcher recovery {campaign_id}` shows where it stands.")  # fmt: skip
    supervisor.spawn(storage, campaign_id)


def request_stop(storage: Storage, campaign_id: str, by: str) -> None:
    """Ask a running campaign to end; it puts what it has on record first.

    Raises ``CampaignError`` if it is not running.
    """
    state = lifecycle(storage, campaign_id)
    if state != "running":
        raise CampaignError(f"campaign {campaign_id} cannot be stopped", expected="a running campaign", got=state)
    Ledger(storage, campaign_id).event(events.STOP_REQUESTED, {"by": by})
