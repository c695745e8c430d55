"""What a plan does with predicted peaks: the search, the fit, what is left out, what never is, who does not read."""

import dataclasses
import math

import pytest
from builders import CAMPAIGN, DECIDED, DEVICE, MIB, chain, good_trials, plan, source, trial
from hypothesis import given
from hypothesis import strategies as st

from watcherml.campaign.decide import Next, decide
from watcherml.planning.equivalence import divisors
from watcherml.planning.plan import make_plan
from watcherml.planning.predict import (
    NO_PREDICTIONS,
    Measured,
    Predictions,
    at_least,
    largest_fitting,
    probing_order,
)
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.proposal import config_digest
from watcherml.protocol.result import Peak
from watcherml.sealed.device import Device
from watcherml.verdict.verify import verify

BUDGET = DEVICE.budget_bytes
CUDA = Device("cuda", "NVIDIA A100", 8 * 2**30)

affine = st.tuples(st.integers(0, 5_000), st.integers(0, 100))
models = st.lists(affine, min_size=1, max_size=4)


def largest_of(model):
    """A peak as training has it: the largest of affine functions of the micro-batch."""
    return lambda size: max(fixed + each * size for fixed, each in model)


@given(models, st.integers(1, 600), st.integers(0, 60_000))
def test_the_search_finds_the_largest_that_fits_in_few_evaluations(model, batch, budget):
    peak = largest_of(model)
    for values in (range(1, batch + 1), divisors(batch)):
        found = largest_fitting(values, peak, budget)
        assert found.value == max((one for one in values if peak(one) <= budget), default=None)
        assert found.complete and found.monotone
        assert len(found.peaks) <= 2 * math.log2(len(values)) + 4
        guided = largest_fitting(values, peak, budget, known={batch + 1: peak(batch + 1)})
        assert guided.value == found.value and len(guided.peaks) <= 2 * math.log2(len(values)) + 4
        assert all(found.peaks[size] == peak(size) for size in found.peaks)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(0, 9), st.integers(1, 24))
def test_a_peak_that_does_not_grow_is_said_so_and_never_made_up(needs, budget, evaluations):
    values = range(1, len(needs) + 1)
    asked = []

    def peak(size):
        asked.append(size)
        return needs[size - 1]

    found = largest_fitting(values, peak, budget, max_evaluations=evaluations)
    assert len(asked) == len(set(asked)) <= evaluations
    if found.value is not None:
        assert needs[found.value - 1] <= budget
        above = [size for size in (found.value + 1, found.value + 2) if size <= len(needs)]
        assert not found.complete or all(found.peaks[size] > budget for size in above)
    seen = [found.peaks[size] for size in sorted(found.peaks)]
    assert found.monotone == (seen == sorted(seen))


def test_the_search_goes_where_the_line_says_and_not_to_dear_small_batches():
    asked = []

    def peak(size):
        asked.append(size)
        return 3_200 + 431 * size

    found = largest_fitting(divisors(96)[:-1], peak, 8_500, known={96: 44_600})
    assert found.value == 12 and asked == [48, 12, 24, 16]


def test_a_larger_value_that_fits_behind_one_that_does_not_is_found():
    peaks = {1: 3, 2: 4, 3: 20, 4: 9, 5: 30, 6: 31, 7: 32, 8: 33, 9: 34, 10: 50}
    found = largest_fitting(sorted(peaks), peaks.get, 9, known={20: 1_000})
    assert found.value == 4 and not found.monotone and found.complete


@pytest.mark.parametrize("unknown", [1, 2, 4, 8, 16, 32])
def test_a_peak_that_nobody_can_tell_ends_the_search_with_what_is_known(unknown):
    found = largest_fitting((1, 2, 4, 8, 16, 32), lambda size: None if size == unknown else size, 8)
    assert found.complete == (unknown not in found.peaks)
    assert found.value == (8 if found.complete else {8: 4}.get(unknown))


@given(models, st.lists(st.tuples(st.integers(1, 300), st.booleans()), max_size=6), st.integers(1, 300))
def test_the_fit_is_never_above_the_true_peak(model, sizes, asked):
    peak = largest_of(model)
    # What ran out of memory needed at least what it had when it did.
    measured = [Measured(size, peak(size) // (2 if ran_out else 1), ran_out) for size, ran_out in sizes]
    bound = at_least(measured, asked)
    assert bound is None or bound <= peak(asked)
    if (asked, False) in sizes:
        assert bound == peak(asked)


def test_the_fit_goes_through_what_was_measured_and_bends_upwards():
    measured = [Measured(4, 400), Measured(8, 600), Measured(16, 1_400)]
    assert [at_least(measured, size) for size in (4, 8, 16, 32)] == [400, 600, 1_400, 3_000]
    assert at_least(measured, 2) == 300 and at_least([], 4) is None and at_least(measured[1:], 4) == 200


# -- the plan


def digest_of(made, proposal_id):
    return made.proposal(proposal_id).config_digest


def predicted(peaks, micro_batches=(), unchanged=200, **options):
    """Return the usual plan with the peaks (MiB) by proposal id, the unchanged configuration's among them."""
    bare = remade(NO_PREDICTIONS, **options)
    known = {config_digest(bare.source.config): unchanged * MIB} if unchanged else {}
    known.update({digest_of(bare, name): size * MIB for name, size in peaks.items()})
    return remade(Predictions(known, micro_batches), **options)


def remade(predictions, config=None, device=DEVICE, max_proposals=16, **options):
    made = plan(config, device, **options)
    return make_plan(
        made.contract, made.source, made.capabilities, (), include_approval_required=True,
        max_proposals=max_proposals, predictions=predictions,
    )  # fmt: skip


def names(made):
    return [one.proposal_id for one in made.proposals]


def left_out(made):
    return [one.capability for one in made.skipped if "peak is predicted to be" in one.reason]


def test_what_is_predicted_not_to_fit_is_left_out_and_the_largest_that_fits_comes_first():
    bare, made = plan(), predicted({"batch-32x2": 101, "checkpointing": 120, "batch-16x4": 58})
    assert names(made) == [one for one in names(bare) if one not in ("batch-32x2", "checkpointing")]
    assert names(made)[0] == "batch-16x4" and made.proposals[0].predicted_peak_bytes == 58 * MIB
    reasons = {one.capability: one.reason for one in made.skipped}
    assert reasons["batch-32x2"] == "Its peak is predicted to be 101.0 MiB of 96.0 MiB, so it is not tried."
    assert "predicted to be 120.0 MiB" in reasons["checkpointing"]
    assert any("unchanged configuration: predicted 200.0 MiB of 96.0 MiB" in note for note in made.notes)
    assert RecoveryPlan.from_json(made.to_json()) == made
    assert decide(made, (), frozenset(), (trial(made, "control", 1, outcome="oom"),)) == Next("probe", "batch-16x4")


def test_a_peak_of_exactly_the_budget_fits():
    assert BUDGET == 96 * MIB
    assert names(predicted({"batch-32x2": 96}))[0] == "batch-32x2"
    assert names(predicted({"batch-32x2": 97}))[0] == "checkpointing"


def test_a_prediction_leaves_out_nothing_on_cuda():
    made = predicted({"batch-32x2": 9_000, "checkpointing": 9_000}, unchanged=20_000, device=CUDA)
    assert names(made) == names(plan(device=CUDA)) and not left_out(made)
    assert made.proposal("batch-32x2").predicted_peak_bytes == 9_000 * MIB


@pytest.mark.parametrize("unchanged", [None, 50, 96])
def test_a_prediction_that_does_not_explain_the_failure_leaves_out_nothing(unchanged):
    made = predicted({"batch-32x2": 101}, unchanged=unchanged)
    assert names(made) == names(plan()) and made.proposals[0].predicted_peak_bytes == 101 * MIB
    assert any("nothing is left out for its prediction" in note for note in made.notes)


@pytest.mark.parametrize(("shortfall", "explained"), [(None, True), (1, True), (114, True), (115, False), (900, False)])
def test_a_prediction_below_what_the_failed_run_needed_leaves_out_nothing(shortfall, explained):
    bare = plan()
    source = dataclasses.replace(bare.source, shortfall_bytes=None if shortfall is None else shortfall * MIB)
    peaks = {config_digest(source.config): 200 * MIB, digest_of(bare, "batch-32x2"): 101 * MIB}
    made = make_plan(bare.contract, source, bare.capabilities, (), include_approval_required=True, max_proposals=16,
                     predictions=Predictions(peaks))  # fmt: skip
    assert ("batch-32x2" in names(made)) is not explained
    told = [note for note in made.notes if "nothing is left out for its prediction" in note]
    assert bool(told) is not explained
    assert all(f"needed at least {96 + shortfall}.0 MiB: the prediction misses" in note for note in told)


def test_where_nothing_is_predicted_to_fit_the_closest_is_tried_all_the_same():
    every = names(plan())
    made = predicted({name: 100 + place for place, name in enumerate(reversed(every))})
    assert names(made) == [every[-1]] and made.proposals[0].predicted_peak_bytes == 100 * MIB
    assert sorted(left_out(made)) == sorted(every[:-1])


@pytest.mark.parametrize(
    ("peaks", "told"),
    [
        ({"batch-32x2": 200, "batch-16x4": 200}, True),
        ({"batch-32x2": 200, "checkpointing": 150}, True),
        ({"batch-32x2": 200, "batch-16x4": 199}, False),
        ({"checkpointing": 200}, False),
    ],
)
def test_a_plan_says_that_a_smaller_batch_needs_just_as_much(peaks, told):
    notes = [note for note in predicted(peaks).notes if "the function reads batch_size from its config" in note]
    assert len(notes) == told


def test_what_is_left_out_takes_no_place_in_the_plan():
    made = predicted({"batch-32x2": 101, "checkpointing": 101}, max_proposals=2)
    assert names(made) == ["batch-16x4", "batch-32x2+checkpointing"]


def test_the_ladder_gets_the_largest_exact_divisor_that_fits():
    config = {"batch_size": 96, "gradient_accumulation_steps": 1}
    assert names(plan(config))[:3] == ["batch-48x2", "batch-24x4", "batch-12x8"]
    made = predicted({}, micro_batches=(32, 7, 96, 0), config=config)
    assert names(made)[:4] == ["batch-48x2", "batch-32x3", "batch-24x4", "batch-12x8"]
    assert made.proposal("batch-32x3").effective_batch == "preserved"


def test_a_plan_says_why_no_peak_is_predicted():
    made = remade(Predictions(reason="it raised ValueError: no"))
    assert "No peak is predicted: it raised ValueError: no." in made.notes
    assert remade(NO_PREDICTIONS).notes == plan().notes
    part = remade(Predictions({plan().proposals[0].config_digest: MIB}, (), "it took longer than 60 s"))
    assert part.proposals[0].predicted_peak_bytes == MIB
    assert part.notes[-1] == "Not every peak that was asked for could be predicted: it took longer than 60 s."


def test_equal_predictions_make_an_equal_plan_to_the_byte():
    first, second = (predicted({"batch-32x2": 101, "batch-16x4": 58}, (16,)) for _ in range(2))
    assert first.to_json() == second.to_json() and first.digest != plan().digest


PREDICTED = {"batch-32x2": 58, "checkpointing": 20, "batch-16x4": 1}


@pytest.mark.parametrize("ending", ["verified", "failed", "no control"])
def test_the_verifier_does_not_read_predictions(ending):
    """A wrong prediction, a right one and none give the same checks and the same verdict on the same trials."""
    told = []
    for made in (plan(), predicted(PREDICTED), predicted(dict.fromkeys(PREDICTED, 1), unchanged=1)):
        trials = good_trials(made)
        if ending == "failed":
            trials = (*trials[:-1], trial(made, "confirmation", 5, "batch-32x2", outcome="oom"))
        elif ending == "no control":
            trials = trials[1:]
        found = verify(CAMPAIGN, made, (), trials, DECIDED)
        checks = [(one.name, one.outcome, one.required, one.observed) for one in found.checks]
        digests = {made.digest: "PLAN", **{one.request.digest: "REQUEST" for one in trials}}
        told.append((found.status, found.reason_code, found.sentence, blind(checks, digests)))
        assert chain(made, trials).verdict == found
    assert told[0] == told[1] == told[2]
    assert told[0][0] == {"verified": "verified", "failed": "not_recovered", "no control": "stopped"}[ending]


def blind(checks, digests):
    text = repr(checks)
    for digest, word in digests.items():
        text = text.replace(digest, word)
    return text


# -- the order of probes, by what was measured


def measured_trial(made, number, proposal_id, gib, outcome="completed", role="probe"):
    peak = Peak("cuda", "torch", int(gib * 2**30), int(gib * 2**30))
    return trial(made, role, number, proposal_id, outcome=outcome, peak=peak)


def test_rungs_whose_fitted_peak_is_beyond_the_device_are_probed_last():
    made = plan(device=CUDA)
    fresh = ["batch-32x2", "checkpointing", "batch-16x4"]
    assert probing_order(made, fresh, ()) == fresh
    small = [measured_trial(made, 1, "batch-4x16", 2.0), measured_trial(made, 2, "batch-8x8", 3.0)]
    assert probing_order(made, fresh, small) == ["checkpointing", "batch-16x4", "batch-32x2"]  # 9 GiB at least
    assert probing_order(made, fresh, small[:1]) == fresh
    control = measured_trial(made, 1, None, 7.9, "oom", "control")
    assert probing_order(made, fresh, [control]) == fresh  # a larger batch says nothing of a smaller one


def test_a_ladder_is_not_judged_by_another_ladders_peaks():
    made = plan(device=CUDA)
    rungs = ["batch-32x2+checkpointing", "batch-32x2"]
    plain = [measured_trial(made, 1, "batch-4x16", 2.0), measured_trial(made, 2, "batch-8x8", 4.0)]
    assert probing_order(made, rungs, plain) == rungs
    assert probing_order(made, rungs[::-1], plain) == rungs


def test_where_the_device_is_not_known_the_plans_order_stands():
    made = plan(device=Device("none"))
    assert probing_order(made, ["batch-32x2", "batch-16x4"], ()) == ["batch-32x2", "batch-16x4"]
    assert source().run_id
