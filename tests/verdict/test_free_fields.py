"""Every field of a trial matters to the verdict, but for the ones listed here with the reason."""

import pytest
from builders import CAMPAIGN, DECIDED
from forged import GOOD, PLAN

from watcherml.errors import InvalidValue
from watcherml.protocol.request import TrialRequest
from watcherml.protocol.result import Trial, TrialResult
from watcherml.verdict.verify import verify

# Told to a person, and judged by nothing.
TOLD = {
    "request.request_id",  # renamed consistently, which is another chain that no store knows
    "request.timeout_seconds",  # within the contract's limit
    "result.failure", "result.failure.subkind", "result.failure.exception_type", "result.failure.message",
    "result.exit_code", "result.exit_signal", "result.started_at", "result.wall_seconds", "result.gpu_seconds",
    "result.sentence", "result.execution_id",  # another id that is still unique
    "result.identity.environment_fingerprint", "result.identity.git_commit", "result.identity.dataset_fingerprint",
    "result.peak.method", "result.peak.reserved_bytes", "result.peak.other_bytes",  # not compared on this device
    "result.device.name",  # of the simulated device
}  # fmt: skip
# A value that keeps the contract better, or as well.
BETTER = {"result.metrics.val_loss", "result.peak.allocated_bytes", "result.progress.steps", "result.progress.source"}
BY_ROLE = {
    # A control has to fail as the source did: its request within 5 %, its phase where it is known.
    "control": {"result.failure.phase", "result.failure.requested_bytes", "result.progress.claimed",
                "result.progress.steps", "result.progress.source", "result.peak.allocated_bytes"},
    # A probe rejects; what it measures of the metrics is not asked.
    "probe": BETTER | {"result.progress.claimed", "result.metrics.steps_completed"},
    "full": BETTER,
    "confirmation": BETTER,
}  # fmt: skip


def leaves(value, path=()):
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    else:
        yield path


def others(value):
    """Return other values of about the same kind."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, (int, float)):
        return [value + 1, 0, None]
    if isinstance(value, str):
        return [value + "x", "", "sha256:" + "5" * 64, "marks", None]
    return [None, "x", 1, "sha256:" + "5" * 64, {}]


def edited(trial, part, path, value):
    """Return the trial with one leaf changed and bound again, None where the value is not valid there."""
    data = {"request": trial.request.to_data(), "result": trial.result.to_data()}
    target = data[part]
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    try:
        request = TrialRequest.from_data(data["request"])
        if part == "request":
            data["result"].update(request_digest=request.digest)
        return Trial(request, TrialResult.from_data(data["result"]))
    except InvalidValue:
        return None


@pytest.mark.parametrize("position", range(len(GOOD)))
def test_a_change_of_any_other_field_is_not_verified(position):
    survived = set()
    for part in ("request", "result"):
        data = getattr(GOOD[position], part).to_data()
        for path in leaves(data):
            present = data
            for key in path:
                present = present[key]
            for value in others(present):
                trial = edited(GOOD[position], part, path, value)
                if trial is None or trial == GOOD[position]:
                    continue
                trials = (*GOOD[:position], trial, *GOOD[position + 1 :])
                if verify(CAMPAIGN, PLAN, (), trials, DECIDED).status == "verified":
                    survived.add(".".join((part, *path)))
    assert survived - TOLD <= BY_ROLE[GOOD[position].request.role]
    assert {"result.sentence", "result.wall_seconds"} < survived  # the search itself works
