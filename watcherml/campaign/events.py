"""The events of a campaign: names, and the words a surface shows for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PREPARED = "prepared"
AUTHORIZED = "authorized"
REJECTED = "rejected"
STARTED = "started"
RESUMED = "resumed"
START_FAILED = "start_failed"
TRIAL_STARTED = "trial_started"
TRIAL_ENDED = "trial_ended"
RANKED = "ranked"
STOP_REQUESTED = "stop_requested"
INTERRUPTED = "interrupted"
LANES = "parallel_probes"
MEMORY_TAKEN = "memory_taken"
ENDED = "ended"


def words(kind: str, body: Mapping[str, Any]) -> str:
    """Return one line for an event."""
    candidate = body.get("proposal_id") or "unchanged configuration"
    if kind == PREPARED:
        return "Prepared."
    if kind == AUTHORIZED:
        return f"{body.get('approved_by')} approved {candidate}: {body.get('reason')}"
    if kind == REJECTED:
        return f"{body.get('rejected_by')} rejected {candidate}: {body.get('reason')}"
    if kind == TRIAL_STARTED:
        limit = body.get("max_steps")
        length = f"at most {limit} steps" if limit else "full length"
        return f"{body.get('role')} of {candidate} started ({length})."
    if kind == TRIAL_ENDED:
        return f"{body.get('role')} of {candidate}: {body.get('outcome')}. {body.get('sentence')}"
    if kind == RANKED:
        return f"Order for confirmation: {', '.join(body.get('order', [])) or 'nobody is eligible'}."
    if kind in (LANES, MEMORY_TAKEN):
        return str(body.get("sentence"))
    if kind == INTERRUPTED:
        return f"The supervisor was ended by {body.get('signal')}; the campaign can be resumed."
    if kind == START_FAILED:
        return f"No supervising process came up: {body.get('got')}"
    if kind == STOP_REQUESTED:
        return f"A stop was asked for ({body.get('by')})."
    if kind == ENDED:
        word, sentence = str(body.get("status")), str(body.get("sentence"))
        return sentence if sentence.lower().startswith(word) else f"{word}: {sentence}"  # "verified: Verified on ..."
    return {STARTED: "The supervisor started.", RESUMED: "The supervisor resumed the campaign."}.get(kind, kind)
