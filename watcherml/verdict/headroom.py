"""Was a passing trial too close to the limit? The one home of that rule (cause C23 of the diagnosis' table).

A peak that left less than 3 % of the device, or an allocator that had to empty its cache in two or more steps running,
passes by luck: the next longer batch fails. Reasoned, not measured on GPUs.
"""

from __future__ import annotations

from watcherml.protocol.result import TrialResult

LEAST_HEADROOM = 0.03
RETRYING_STEPS = 2
_MIB = 2**20


def near_limit(result: TrialResult, budget_bytes: int | None) -> tuple[str, ...]:
    """Return each sign that a trial came too close, in words that follow "it"; empty for none and for not measured.

    What the trial measured of its own device counts, else the peak is compared with the contract's ``budget_bytes``.
    """
    peak = result.peak
    if peak is None:
        return ()
    signs = []
    limit = peak.limit_bytes if peak.headroom_bytes is not None else budget_bytes
    left = peak.headroom_bytes
    if left is None and limit is not None and peak.compared_bytes is not None:
        left = limit - peak.compared_bytes
    if left is not None and limit and left < LEAST_HEADROOM * limit:
        signs.append(f"left {_share(left, limit)} of the {'card' if peak.kind == 'cuda' else 'device'}")
    if (peak.retrying_steps or 0) >= RETRYING_STEPS:
        signs.append(f"made the allocator retry in {peak.retrying_steps} consecutive steps")
    return tuple(signs)


def _share(left: int, limit: int) -> str:
    return f"{100 * left / limit:.1f} % ({max(0, left) / _MIB:.1f} MiB)" if left >= 0 else "less than nothing"
