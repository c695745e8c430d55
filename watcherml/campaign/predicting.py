"""Asking a dry run for the peaks that a plan is ordered by. No trial runs, and nothing here is evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from watcherml.contract.contract import RecoveryContract
from watcherml.planning.candidates import Candidates
from watcherml.planning.predict import NO_PREDICTIONS, Predictions, largest_fitting
from watcherml.protocol.proposal import config_digest
from watcherml.sealed.device import Device
from watcherml.trials.dry_run import Answer, DryRun
from watcherml.verdict.headroom import LEAST_HEADROOM

# What the candidates beyond the search may cost together, in operators looked at: some seconds. A small micro-batch
# that is accumulated often is the dearest to predict, and where a larger one fits the least worth it.
MORE_OPERATORS = 10_000

Ask = Callable[[Any, "int | None"], Answer]


@contextmanager
def dry_run_for(device: Device, python: str | None, wanted: bool) -> Iterator[DryRun | None]:
    """Yield a dry run whose process is loading already, or None where nothing is to be predicted.

    Only the simulated device counts what a prediction counts; there is no such prediction for CUDA.
    """
    if not wanted or device.kind != "simulated":
        yield None
        return
    with DryRun(python=python) as dry:
        yield dry


def predictions_of(
    dry: DryRun | None, contract: RecoveryContract, candidates: Candidates, project_root: str,
    secrets: dict[str, str], uses_torch: bool,
) -> Predictions:  # fmt: skip
    """Return what the dry run says of the unchanged configuration and of every candidate that is worth asking for."""
    if dry is None or not candidates.configs(()):
        return NO_PREDICTIONS
    if not uses_torch:
        return Predictions(reason="the entrypoint does not use torch")
    reason = dry.open(contract.entrypoint, project_root, secrets)
    if reason:
        return Predictions(reason=reason)
    return predicted(lambda config, operators: dry.ask(config, operators=operators), contract.device, candidates)


def predicted(ask: Ask, device: Device, candidates: Candidates) -> Predictions:
    """Return the peaks: of the unchanged configuration, of each ladder's search, and of the rest while it is cheap."""
    first = ask(candidates.unchanged, None)
    if first.peak_bytes is None:
        return Predictions(reason=first.reason)
    peaks = {config_digest(candidates.unchanged): first.peak_bytes}
    reasons: list[str] = []

    def peak_of(config: dict[str, Any], operators: int | None = None) -> tuple[int | None, int]:
        digest = config_digest(config)
        if digest in peaks:
            return peaks[digest], 0
        answer = ask(config, operators)
        if answer.peak_bytes is not None:
            peaks[digest] = answer.peak_bytes
        elif operators is None:
            reasons.append(answer.reason)
        return answer.peak_bytes, answer.operators

    budget = device.budget_bytes or 0
    if candidates.any_size:
        budget = int(budget * (1 - LEAST_HEADROOM))  # it costs a sample or two, and the result is not too close
    fitting = []
    for number, ladder in enumerate(candidates.ladders()):
        # The plain ladder begins below the unchanged configuration, whose peak helps to guess.
        known = {} if number else {candidates.size: first.peak_bytes}
        sizes = sorted(ladder)
        fitting.append(largest_fitting(sizes, lambda size: peak_of(ladder[size])[0], budget, known=known).value)  # noqa: B023
    micro_batches = tuple(sorted({one for one in fitting if one is not None}))
    left = MORE_OPERATORS
    for config in candidates.configs(micro_batches):
        if left <= 0:
            break
        left -= peak_of(config, left)[1]
    return Predictions(peaks, micro_batches, next(iter(reasons), ""))
