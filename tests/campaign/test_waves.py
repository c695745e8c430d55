"""Probes at once: whatever the order in which they end, the same campaign; and what it can cost at most."""

import itertools
import os
import signal
import time

import pytest
from builders import CAMPAIGN, DECIDED, plan, trial
from hypothesis import given, settings
from hypothesis import strategies as st

import watcherml
from watcherml.campaign.decide import Next, decide_wave
from watcherml.campaign.lanes import Lanes, choose, lanes_here, processors
from watcherml.campaign.ledger import Ledger
from watcherml.contract.budget import RecoveryBudget
from watcherml.contract.contract import RecoveryContract, VerificationRequirements
from watcherml.errors import InvalidValue
from watcherml.protocol.cost import worst_case
from watcherml.sealed.device import Device
from watcherml.verdict.verify import verify

GOOD, BAD = "completed", "oom"


def play(made, outcome_of, lanes, shuffle=lambda wave: wave):
    """Run a plan to its end; ``outcome_of(role, proposal)`` says how each trial ends, ``shuffle`` in which order."""
    trials, waves = [], []
    while not isinstance(steps := decide_wave(made, (), frozenset(), tuple(trials), lanes), type(DECIDED)):
        waves.append([(one.role, one.proposal_id) for one in steps])
        ended = [
            trial(made, one.role, len(trials) + number, one.proposal_id, outcome_of(one.role, one.proposal_id))
            for number, one in enumerate(steps, 1)
        ]
        trials += shuffle(ended)
        assert len(trials) <= made.contract.budget.max_trials
    return trials, waves, verify(CAMPAIGN, made, (), tuple(trials), steps)


OUTCOMES = st.sampled_from([GOOD, GOOD, BAD, "training_failed", "timeout", "killed"])


@given(
    st.integers(4, 10), st.integers(1, 3), st.integers(1, 2), st.booleans(), st.integers(2, 4),
    st.lists(OUTCOMES, min_size=40, max_size=40), st.randoms(use_true_random=False),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_whatever_order_probes_end_in_the_campaign_is_the_same(total, runs, full, control, lanes, outcomes, rng):
    try:
        made = plan(
            budget=RecoveryBudget(max_trials=total, max_full_trials=full, max_parallel_probes=lanes),
            verification=VerificationRequirements(50, (), runs),
            control=control,
        )
    except InvalidValue:
        return  # numbers that do not hold together are refused before anything runs
    names = [(role, one.proposal_id) for role in ("probe", "full", "confirmation") for one in made.proposals]
    ends = dict(zip(names, itertools.cycle(outcomes), strict=False))
    ends["control", None] = BAD

    def outcome_of(role, proposal_id):
        return ends[role, proposal_id]

    def shuffled(wave):
        return rng.sample(wave, len(wave))

    straight, waves, verdict = play(made, outcome_of, lanes)
    mixed, mixed_waves, mixed_verdict = play(made, outcome_of, lanes, shuffled)
    assert waves == mixed_waves and sorted(map(str, straight)) == sorted(map(str, mixed))
    assert (verdict.status, verdict.reason_code) == (mixed_verdict.status, mixed_verdict.reason_code)
    assert verdict.reason_code != "broken_chain"
    for wave in waves:
        assert len(wave) <= lanes and len({one for _, one in wave}) == len(wave)
        assert len(wave) == 1 or {role for role, _ in wave} == {"probe"}
    assert len(straight) <= worst_case(made).trials


def test_a_wave_takes_no_place_from_what_follows_and_keeps_the_closing_control():
    def first(lanes, **budget):
        made = plan(budget=RecoveryBudget(max_full_trials=1, max_parallel_probes=8, **budget))
        return decide_wave(made, (), frozenset(), (trial(made, "control", 1, outcome=BAD),), lanes)

    assert first(1, max_trials=8, max_probe_trials=3) == (Next("probe", "batch-32x2"),)
    assert len(first(2, max_trials=8, max_probe_trials=3)) == len(first(8, max_trials=8, max_probe_trials=3)) == 2
    assert len(first(8, max_trials=8, max_probe_trials=5)) == 3  # five less the control and the one kept for its return
    assert len(first(8, max_trials=5, max_probe_trials=2)) == 1


def reachable(made):
    """Return the largest number of trials of any campaign of a plan, found by trying both outcomes of every trial."""
    most, todo = 0, [()]
    while todo:
        trials = todo.pop()
        most = max(most, len(trials))
        step = decide_wave(made, (), frozenset(), trials)
        if isinstance(step, type(DECIDED)):
            continue
        (one,) = step
        for outcome in (BAD,) if one.role == "control" else (GOOD, BAD):
            todo.append((*trials, trial(made, one.role, len(trials) + 1, one.proposal_id, outcome)))
    return most


@pytest.mark.parametrize(
    ("total", "probes", "full", "runs", "control"),
    [(6, 3, 1, 2, True), (4, 1, 2, 1, True), (5, 2, 1, 1, True), (7, 4, 1, 1, True), (6, 2, 2, 1, False),
     (7, 2, 2, 2, True), (8, 4, 2, 2, True), (4, 2, 1, 1, False)],
)  # fmt: skip
def test_the_worst_case_is_what_the_longest_campaign_needs(total, probes, full, runs, control):
    made = plan(
        {"batch_size": 8, "gradient_accumulation_steps": 1, "training_steps": 50},
        budget=RecoveryBudget(total, probes, full), control=control,
        verification=VerificationRequirements(50, (), runs),
    )  # fmt: skip
    cost = worst_case(made)
    assert cost.trials == reachable(made)
    assert cost.trials == cost.control + cost.probes + cost.full + cost.confirmations


def test_the_worst_case_has_its_time_from_the_limits_of_the_contract():
    short = worst_case(plan(budget=RecoveryBudget(6, 3, 1, trial_timeout_seconds=60, campaign_timeout_seconds=200)))
    assert short.trials == 6 and short.wall_seconds == 205 and short.gpu_seconds is None
    long = worst_case(plan(budget=RecoveryBudget(6, 3, 1, trial_timeout_seconds=60, max_gpu_seconds=90)))
    assert long.wall_seconds == 6 * 65 and long.gpu_seconds == 90


def test_a_budget_without_parallel_probes_keeps_its_bytes():
    data = plan().contract.budget.to_data()
    assert "max_parallel_probes" not in data and RecoveryBudget.from_data(data).parallel_probes == 1
    contract = plan(budget=RecoveryBudget(max_parallel_probes=3)).contract
    assert RecoveryContract.from_json(contract.to_json()).budget.parallel_probes == 3


CUDA = Device("cuda", "NVIDIA A100", 80 * 2**30)
A, B, C, OTHER = ({"uuid": f"GPU-{n}", "name": name} for n, name in (
    ("a", "NVIDIA A100"), ("b", "NVIDIA A100"), ("c", "NVIDIA A100"), ("t", "NVIDIA T4")))  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "gpus", "lanes", "said"),
    [
        (1, [A, B], (None,), ""),
        (2, [A, B, C], ("GPU-a", "GPU-b"), ""),
        (3, [A, OTHER, B], ("GPU-a", "GPU-b"), "2 GPUs are like the source's"),
        (2, [A, OTHER], (None,), "1 of 2 visible GPUs"),
        (2, [], (None,), "no driver"),
    ],
)
def test_each_lane_on_cuda_is_one_gpu_of_the_sources_model(asked, gpus, lanes, said):
    made = plan(device=CUDA, budget=RecoveryBudget(max_parallel_probes=asked))
    found = choose(made, gpus, 8, "" if gpus else "no driver")
    assert found.gpus == lanes and said in found.reason and bool(said) == bool(found.reason)


def test_lanes_without_gpus_are_bounded_by_the_processors():
    made = plan(budget=RecoveryBudget(max_parallel_probes=4))
    assert choose(made, [], 2).gpus == (None, None) and choose(made, [], 8) == Lanes((None,) * 4)
    assert lanes_here(plan()) == Lanes()


# -- real processes ---------------------------------------------------------------------------------------------------

PARALLEL = RecoveryBudget(max_trials=7, max_probe_trials=3, max_full_trials=1, max_parallel_probes=2)
two_processors = pytest.mark.skipif(processors() < 2, reason="two probes at once need two processors")


@pytest.fixture
def start(storage, failed_run):
    def begin(seconds):
        wanted = VerificationRequirements(minimum_progress_steps=50, confirmation_runs=1)
        made = watcherml.prepare_oom_recovery(failed_run(seconds=seconds), "ent:train", wanted, PARALLEL,
                                              storage=storage)  # fmt: skip
        return watcherml.start_recovery(made)

    return begin


def spans(trials):
    return [(one.result.started_at, one.result.started_at + one.result.wall_seconds) for one in trials]


def overlap(first, second):
    return min(first[1], second[1]) - max(first[0], second[0]) > 0


@two_processors
def test_two_probes_run_at_once_and_everything_else_alone(start):
    result = start(0.3).wait(120)
    assert result.verified, result.sentence
    roles = [one.request.role for one in result.trials]
    assert roles == ["control", "probe", "probe", "full", "confirmation"]
    at = spans(result.trials)
    assert overlap(at[1], at[2])
    assert [pair for pair in itertools.combinations(range(5), 2) if overlap(at[pair[0]], at[pair[1]])] == [(1, 2)]


@two_processors
def test_a_supervisor_killed_with_two_probes_in_flight_resumes_within_the_budget(start):
    campaign = start(1.0)
    deadline = time.monotonic() + 60
    while sum(row["ended_at"] is None for row in campaign.trials()) < 2:
        assert time.monotonic() < deadline and campaign.lifecycle != "ended"
        time.sleep(0.02)
    os.kill(Ledger(campaign.storage, campaign.campaign_id).supervisor().pid, signal.SIGKILL)
    while campaign.lifecycle != "interrupted":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    result = watcherml.resume_recovery(campaign.campaign_id, campaign.storage).wait(120)
    outcomes = [(one.request.role, one.result.outcome) for one in result.trials]
    assert outcomes[1:3] == [("probe", "lost")] * 2 and len(outcomes) <= PARALLEL.max_trials
    assert result.verified, result.sentence
