"""Where a campaign stands, and taking up one that lost its supervisor."""

from __future__ import annotations

from typing import Literal

from watcherml.campaign import events, supervisor
from watcherml.campaign.ledger import Ledger
from watcherml.errors import CampaignError
from watcherml.store.storage import Storage

Lifecycle = Literal["prepared", "running", "interrupted", "ended"]
_CHANGES = (events.STARTED, events.RESUMED, events.INTERRUPTED)


def lifecycle(storage: Storage, campaign_id: str) -> Lifecycle:
    """Return prepared, running, interrupted (its supervisor is gone) or ended."""
    row = storage.audit.campaign(campaign_id)
    if row["last_change"] == events.ENDED:
        return "ended"
    process = Ledger(storage, campaign_id).supervisor()
    if process is None:
        return "prepared"
    if storage.alive(process):
        return "running"
    # It may have come to its end, and gone, since the row was read.
    return "ended" if storage.audit.campaign(campaign_id)["last_change"] == events.ENDED else "interrupted"


def sentence(storage: Storage, campaign_id: str, state: Lifecycle | None = None) -> str:
    """Return where a campaign stands for a person: what it waits for, runs, lost, or came to."""
    state = state or lifecycle(storage, campaign_id)
    if state == "ended":
        return str(storage.audit.campaign(campaign_id)["sentence"])
    if state == "prepared":
        if Ledger(storage, campaign_id).comes_up():
            return "Prepared; its supervising process has not started yet."
        return f"Prepared; its supervising process did not start, and `watcher resume {campaign_id}` starts one."
    if state == "running":
        rows = [one for one in storage.audit.trials(campaign_id) if one["ended_at"] is None]
        now = [f"{one['role']} of {one['proposal_id'] or 'the unchanged configuration'}" for one in rows]
        return f"Running: {', '.join(now)}." if now else "Running: deciding what is next."
    kinds = [one for one in storage.audit.events(campaign_id) if one["type"] in _CHANGES]
    last = kinds[-1] if kinds else {}
    how = f"was ended by {last['body'].get('signal')}" if last.get("type") == events.INTERRUPTED else "is gone"
    return f"The supervising process {how}; `watcher resume {campaign_id}` takes the campaign up."


def is_under_way(storage: Storage, campaign_id: str) -> bool:
    """Tell whether a campaign without an end comes to it by itself: somebody runs it, or is about to."""
    state = lifecycle(storage, campaign_id)
    return state in ("running", "ended") or (state == "prepared" and Ledger(storage, campaign_id).comes_up())


def resume(storage: Storage, campaign_id: str) -> None:
    """Start a new supervisor for an interrupted campaign.

    Raises ``CampaignError`` if it is running or has ended.
    """
    state = lifecycle(storage, campaign_id)
    if state in ("running", "ended"):
        again = " To try again: `watcher recover --plan FILE`, or `watcher recover RUN_ID` with the same flags."
        raise CampaignError(f"campaign {campaign_id} cannot be resumed", expected="an interrupted campaign", got=state,
                            remedy=f"`watcher recovery {campaign_id}` shows where it stands."
                                   f"{again if state == 'ended' else ''}")  # fmt: skip
    supervisor.spawn(storage, campaign_id)


def request_stop(storage: Storage, campaign_id: str, by: str) -> None:
    """Ask a running campaign to end; it puts what it has on record first.

    Raises ``CampaignError`` if it is not running.
    """
    state = lifecycle(storage, campaign_id)
    if state != "running":
        raise CampaignError(f"campaign {campaign_id} cannot be stopped", expected="a running campaign", got=state)
    Ledger(storage, campaign_id).event(events.STOP_REQUESTED, {"by": by})
