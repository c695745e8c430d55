"""Where no accumulation keeps the effective batch, the largest size that fits is looked for among all sizes."""

import pytest
from builders import MIB, contract, source

from watcherml.campaign.predicting import predicted
from watcherml.planning.candidates import Candidates
from watcherml.planning.discover import discover
from watcherml.planning.equivalence import halves_down, sizes_below
from watcherml.planning.plan import make_plan
from watcherml.sealed.device import Device
from watcherml.trials.dry_run import Answer

DEVICE = Device("simulated", "S", 27 * MIB + 10)


# A sample takes 1 MiB, and where any size will do 3 % stay free.
# The batch, whether accumulation can go up, and the first size that is tried.
@pytest.mark.parametrize(
    ("batch", "more", "first"),
    [
        (37, {}, "batch-26"),
        (48, {}, "batch-26"),
        (28, {}, "batch-26"),
        (64, {}, "batch-26"),
        (54, {"accum": 1}, "batch-27x2"),
        (48, {"accum": 1}, "batch-24x2"),
        (37, {"accum": 1}, "batch-1x37"),
    ],
)
def test_the_first_change_is_the_largest_that_fits(batch, more, first):
    config = {"batch_size": batch, **more}
    asked = []

    def ask(one, operators):
        asked.append(one["batch_size"])
        return Answer(one["batch_size"] * MIB, steps=2, operators=1)

    made = source(config, DEVICE, shortfall_bytes=None)
    capabilities, skipped = discover(config)
    wanted = contract(made, DEVICE)
    predictions = predicted(ask, DEVICE, Candidates(wanted, made, capabilities, skipped, True))
    plan = make_plan(
        wanted, made, capabilities, skipped,
        include_approval_required=True, max_proposals=16, predictions=predictions,
    )  # fmt: skip
    assert plan.proposals[0].proposal_id == first
    assert len(asked) <= 24


@pytest.mark.parametrize("batch", [1, 2, 3, 37, 256, 257, 3_000, 10**9])
def test_the_sizes_that_are_looked_at_are_few_and_hold_the_halves(batch):
    sizes = sizes_below(batch)
    assert list(sizes) == sorted(set(sizes)) and all(0 < one < batch for one in sizes)
    assert set(halves_down(batch)) <= set(sizes) and len(sizes) <= 256 + 64
    assert batch > 256 or len(sizes) == batch - 1
