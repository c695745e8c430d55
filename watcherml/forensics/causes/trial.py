"""C23: a candidate that passes too close to the limit. Judged of a trial, never of a source failure."""

from __future__ import annotations

from watcherml.forensics.causes.thresholds import HEADROOM, RETRYING_STEPS
from watcherml.forensics.text import amount


def near_limit(
    peak_reserved: int | None, outside: int | None, limit: int | None, retries: tuple[int, ...] = ()
) -> str | None:
    """Return why a passing trial is too close to the limit, empty if it is not, None if nothing measured it.

    Sizes are bytes: torch's peak of reserved memory, what lies outside torch, and the device's size or cap.
    ``retries`` counts the allocator's retries in each step.
    """
    running = longest = 0
    for count in retries:
        running = running + 1 if count > 0 else 0
        longest = max(longest, running)
    if longest >= RETRYING_STEPS:
        return f"The allocator had to flush its cache and try again in {longest} steps running."
    if peak_reserved is None or outside is None or not limit:
        return None
    left = limit - peak_reserved - outside
    if left < HEADROOM * limit:
        return f"Only {amount(left)} of {amount(limit)} were left ({100 * left / limit:.1f} %)."
    return ""
