"""What follows from predicted and measured peaks: the largest micro-batch that fits, what cannot fit, what is next.

Pure: the peak of a configuration is asked of a function that the caller brings. A prediction orders candidates and
leaves out what is predicted not to fit; it is never evidence.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from watcherml.planning.spelling import value_of
from watcherml.planning.wording import cut
from watcherml.protocol.plan import RecoveryPlan, Source
from watcherml.protocol.proposal import Proposal, config_digest
from watcherml.protocol.result import Trial
from watcherml.sealed.device import Device

_BATCH = ("micro_batch_size", "gradient_accumulation_steps")
# A prediction leaves out small things (a random generator's state, a progress metric); a kernel's reserve is no such.
_NEARLY = 0.95
MAX_EVALUATIONS = 24


@dataclass(frozen=True)
class Predictions:
    """Predicted peaks in bytes by the digest of the configuration, as a plan uses them.

    ``micro_batches`` are sizes that the ladder gets besides its own: the largest that fit. ``reason`` says why there is
    no prediction, or why it is not complete; empty where there is nothing to say.
    """

    peaks: Mapping[str, int] = field(default_factory=dict)
    micro_batches: tuple[int, ...] = ()
    reason: str = ""

    def of(self, digest: str) -> int | None:
        """Return the peak of a configuration by its digest, None where it was not predicted."""
        return self.peaks.get(digest)

    def explains(self, source: Source, device: Device) -> bool:
        """Tell whether the unchanged configuration, which ran out of memory, is predicted to, and by as much.

        Where it is not, the prediction misses what the failure came from, and nothing may be left out by it: a kernel
        may keep more than the operators that stand for it in the prediction (an LSTM on a CPU keeps twice as much).
        """
        peak = self.of(config_digest(source.config))
        if peak is None or device.budget_bytes is None or peak <= device.budget_bytes:
            return False
        return source.shortfall_bytes is None or peak >= _NEARLY * (device.budget_bytes + source.shortfall_bytes)

    def notes(self, source: Source, device: Device) -> list[str]:
        """Return what a person should know of the predictions, as a plan's notes."""
        if not self.peaks:
            return [cut(f"No peak is predicted: {self.reason}.", 600)] if self.reason else []
        unchanged = self.peaks.get(config_digest(source.config))
        words = (
            "" if unchanged is None else f" The unchanged configuration: predicted {_size_words(unchanged, device)}."
        )
        notes = [f"Peaks are predicted by two optimizer steps without arithmetic; a trial decides.{words}"]
        if not self.explains(source, device):
            notes.append(f"{_needed(source, device)} misses what the failure came from, so nothing is left out for its"
                         " prediction.")  # fmt: skip
        if self.reason:
            notes.append(cut(f"Not every peak that was asked for could be predicted: {self.reason}.", 600))
        return notes


def too_large(peak: int | None, source: Source, device: Device, predictions: Predictions) -> str:
    """Return why a candidate of that predicted peak (bytes) need not be tried, or an empty text.

    Only on a simulated device, whose memory the prediction counts as the device does.
    """
    if device.kind != "simulated" or device.budget_bytes is None or peak is None or peak <= device.budget_bytes:
        return ""
    if not predictions.explains(source, device):
        return ""
    return f"Its peak is predicted to be {_size_words(peak, device)}, so it is not tried."


def _needed(source: Source, device: Device) -> str:
    """Return the subject of a sentence that says what a prediction is short of."""
    if source.shortfall_bytes is None or device.budget_bytes is None:
        return "That"
    needed = (device.budget_bytes + source.shortfall_bytes) / 2**20
    return f"The failed run needed at least {needed:.1f} MiB: the prediction"


def _size_words(peak: int, device: Device) -> str:
    text = f"{peak / 2**20:.1f} MiB"
    return text if device.budget_bytes is None else f"{text} of {device.budget_bytes / 2**20:.1f} MiB"


NO_PREDICTIONS = Predictions()


@dataclass(frozen=True)
class Fitting:
    """The largest value that was seen to fit, None where none was.

    ``peaks`` holds every value that was asked for. ``monotone`` is False if a larger value needed less than a smaller
    one; ``complete`` is False if a peak could not be told or the evaluations were used up.
    """

    value: int | None
    peaks: Mapping[int, int | None]
    monotone: bool
    complete: bool


class _Unknown(Exception):
    """A peak that nobody can tell, or one evaluation too many."""


def largest_fitting(
    values: Sequence[int],
    peak: Callable[[int], int | None],
    budget_bytes: int,
    *,
    known: Mapping[int, int] | None = None,
    max_evaluations: int = MAX_EVALUATIONS,
) -> Fitting:
    """Return the largest of the rising ``values`` whose peak is at most the budget, by bisection.

    The search comes from above, because with accumulation a small micro-batch is the dear one to predict, to where the
    line through two peaks says (``known`` are peaks of other values for that line), and then halves the gap. Neither
    the line nor that memory grows with the batch is taken for granted: the two values above the one found are asked
    for, and where a larger one fits after all the search goes on from there. At most ``max_evaluations`` peaks are
    asked for, each once.
    """
    search = _Search(values, peak, budget_bytes, dict(known or {}), max_evaluations)
    complete = True
    try:
        search.run()
    except _Unknown:
        complete = False
    told = {value: need for value, need in search.found.items() if need is not None}
    rising = [told[value] for value in sorted(told)]
    monotone = all(first <= second for first, second in pairwise(rising))
    fitting = [value for value, need in told.items() if need <= budget_bytes]
    return Fitting(max(fitting, default=None), search.found, monotone, complete)


# By how much the line may be wrong for the first guess: an accumulated step holds its gradients meanwhile.
_GUESS = 1.1


@dataclass
class _Search:
    values: Sequence[int]
    peak: Callable[[int], int | None]
    budget_bytes: int
    known: dict[int, int]
    max_evaluations: int
    found: dict[int, int | None] = field(default_factory=dict)

    def run(self) -> None:
        """Go on until a value fits and the two above it do not, or none fits."""
        low, above = self._come_down()
        while True:
            while above - low > 1:
                middle = (low + above) // 2
                if self._fits(middle):
                    low = middle
                else:
                    above = middle
            higher = [index for index in (low + 1, low + 2) if index < len(self.values) and self._fits(index)]
            if not higher:
                return
            low = max(higher)
            above = low + 1
            while above < len(self.values) and self._fits(above):
                low, above = above, above + 1

    def _come_down(self) -> tuple[int, int]:
        """Return an index that fits, -1 if none was met, and the lowest one that was met and does not."""
        low, above, leap = len(self.values) - 1, len(self.values), 1
        while low >= 0 and not self._fits(low):
            above = low
            low = max(0, min(low - leap, self._guess(low))) if low else -1
            leap *= 2
        return low, above

    def _guess(self, below: int) -> int:
        """Return the index below one that does not fit where the line through the two smallest known peaks fits."""
        points = sorted({**self.known, **{one: need for one, need in self.found.items() if need is not None}}.items())
        if len(points) < 2 or points[1][1] <= points[0][1]:
            return below - 1
        (first, low), (second, high) = points[:2]
        size = first + (self.budget_bytes * _GUESS - low) * (second - first) / (high - low)
        index = bisect_right(self.values, size) - 1
        return index if 0 <= index < below else below - 1

    def _fits(self, index: int) -> bool:
        value = self.values[index]
        if value not in self.found:
            if len(self.found) >= self.max_evaluations:
                raise _Unknown
            self.found[value] = self.peak(value)
        need = self.found[value]
        if need is None:
            raise _Unknown
        return need <= self.budget_bytes


@dataclass(frozen=True)
class Measured:
    """A micro-batch and the bytes it needed: exactly, or, where it ran out of memory, at least."""

    size: int
    peak_bytes: int
    ran_out: bool = False


def at_least(measured: Sequence[Measured], size: int) -> int | None:
    """Return the bytes that a micro-batch needs at least by a fit, None where nothing measured says anything.

    The peak is the largest of affine functions of the micro-batch (of the optimizer step, of a block, of the head), so
    it is convex and does not fall. Hence the line through two exact peaks bounds it from below outside of them, and a
    smaller micro-batch bounds a larger one. The bound is optimistic, by 5 % of a checkpointed model's peak from sizes
    4 and 8 to 64: it tells what cannot fit, never what does.
    """
    bounds = [one.peak_bytes for one in measured if one.size <= size]
    exact = sorted({one.size: one.peak_bytes for one in measured if not one.ran_out}.items())
    for (first, low), (second, high) in pairwise(exact):
        if not first < size < second:
            slope = (high - low) / (second - first)
            bounds.append(int(low + slope * (size - first)))
    at = bisect_right(exact, (size, float("inf")))
    if at and exact[at - 1][0] == size:
        return exact[at - 1][1]
    return max(bounds, default=None)


def probing_order(plan: RecoveryPlan, fresh: Sequence[str], trials: Sequence[Trial]) -> list[str]:
    """Return the candidates that are not probed yet in the order in which to probe them, by what was measured so far.

    The plan's order stands, except that rungs of a ladder come last whose peak, fitted from the same ladder's measured
    ones, cannot fit the device. Nothing is left out: a fit orders, a trial decides.
    """
    budget = plan.contract.device.budget_bytes
    if budget is None:
        return list(fresh)
    ladders = _measured(plan, trials)

    def cannot_fit(proposal_id: str) -> bool:
        proposal = plan.proposal(proposal_id)
        size, known = _size(plan, proposal), ladders.get(_ladder(proposal), [])
        need = None if size is None else at_least(known, size)
        return need is not None and need > budget

    return sorted(fresh, key=cannot_fit)


def _measured(plan: RecoveryPlan, trials: Sequence[Trial]) -> dict[str, list[Measured]]:
    """Return what control and probes have measured, by ladder."""
    found: dict[str, list[Measured]] = {}
    for one in trials:
        proposal = None if one.request.proposal_id is None else plan.proposal(one.request.proposal_id)
        size, peak = _size(plan, proposal), one.result.peak
        if size is None or peak is None or one.result.outcome not in ("completed", "oom"):
            continue
        ran_out = one.result.outcome == "oom"
        used = max(peak.allocated_bytes or 0, 0 if ran_out else peak.reserved_bytes or 0)
        if ran_out and one.result.failure is not None:
            used += one.result.failure.requested_bytes or 0
        found.setdefault(_ladder(proposal), []).append(Measured(size, used, ran_out))
    return found


def _ladder(proposal: Proposal | None) -> str:
    """Name the ladder of a proposal: everything that it changes besides the batch."""
    if proposal is None:
        return ""
    rest = [change.words for change in proposal.changes if change.capability not in _BATCH]
    return "; ".join(sorted([*rest, *(f"{name}={value}" for name, value in proposal.environment.items())]))


def _size(plan: RecoveryPlan, proposal: Proposal | None) -> int | None:
    """Return the micro-batch of a proposal, or of the unchanged configuration."""
    changed = () if proposal is None else proposal.changes
    for change in changed:
        if change.capability == _BATCH[0]:
            return int(change.wanted)
    return next((int(value_of(one)) for one in plan.capabilities if one.name == _BATCH[0]), None)
