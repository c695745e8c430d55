"""What runs next, from what is on record alone."""

import pytest
from builders import CAMPAIGN, DECIDED, MIB, approve, good_trials, plan, trial
from hypothesis import given, settings
from hypothesis import strategies as st

from watcherml.campaign.decide import Next, decide
from watcherml.contract.budget import RecoveryBudget
from watcherml.contract.contract import VerificationRequirements
from watcherml.protocol.result import Peak
from watcherml.verdict.verify import verify

PLAN = plan(budget=RecoveryBudget(max_trials=6, max_probe_trials=3, max_full_trials=1))


def ask(trials, made=PLAN, authorizations=(), rejected=frozenset()):
    return decide(made, authorizations, rejected, tuple(trials))


def test_the_order_of_a_campaign():
    control = trial(PLAN, "control", 1, outcome="oom")
    first = trial(PLAN, "probe", 2, "batch-32x2", outcome="oom")
    second = trial(PLAN, "probe", 3, "checkpointing")
    full = trial(PLAN, "full", 4, "checkpointing")
    one, two = (trial(PLAN, "confirmation", n, "checkpointing") for n in (5, 6))
    assert ask([]) == Next("control", None)
    assert ask([control]) == Next("probe", "batch-32x2")
    assert ask([control, first]) == Next("probe", "checkpointing")
    assert ask([control, first, second]) == Next("full", "checkpointing")
    assert ask([control, first, second, full]) == Next("confirmation", "checkpointing")
    assert ask([control, first, second, full, one]) == Next("confirmation", "checkpointing")
    assert ask([control, first, second, full, one, two]) == DECIDED


@pytest.mark.parametrize("outcome", ["completed", "training_failed", "timeout", "killed", "host_oom", "exited"])
def test_a_control_that_does_not_reproduce_ends_the_campaign(outcome):
    assert ask([trial(PLAN, "control", 1, outcome=outcome)]) == DECIDED


def test_a_lost_trial_is_run_again_while_there_is_room():
    lost = trial(PLAN, "control", 1, outcome="lost")
    assert ask([lost]) == Next("control", None)
    good = trial(PLAN, "control", 2, outcome="oom")
    assert ask([lost, good]) == Next("probe", "batch-32x2")
    assert ask([lost] * 5) == Next("control", None) and ask([lost] * 6) == DECIDED


def test_a_rejected_or_unapproved_proposal_is_never_tried():
    control = trial(PLAN, "control", 1, outcome="oom")
    assert ask([control], rejected=frozenset({"batch-32x2"})) == Next("probe", "checkpointing")
    waiting = plan({"sequence_length": 128})
    control = trial(waiting, "control", 1, outcome="oom")
    assert ask([control], waiting) == DECIDED
    assert ask([control], waiting, (approve(waiting, "sequence-32"),)) == Next("probe", "sequence-32")


def test_without_probes_candidates_go_straight_to_their_full_trial():
    made = plan(budget=RecoveryBudget(max_trials=4))
    assert made.contract.probe_candidates == 0 and "straight" in made.notes[0]
    assert ask([trial(made, "control", 1, outcome="oom")], made) == Next("full", "batch-32x2")


def test_without_a_control_the_first_probe_is_a_candidate():
    assert ask([], plan(control=False)) == Next("probe", "batch-32x2")


def test_a_failed_confirmation_moves_on_only_if_there_is_room():
    made = plan(budget=RecoveryBudget(max_trials=10, max_probe_trials=3, max_full_trials=2))
    trials = [
        trial(made, "control", 1, outcome="oom"),
        trial(made, "probe", 2, "batch-32x2"),
        trial(made, "probe", 3, "checkpointing"),
        trial(made, "full", 4, "batch-32x2", wall_seconds=1.0),
        trial(made, "full", 5, "checkpointing"),
        trial(made, "confirmation", 6, "batch-32x2", outcome="oom"),
    ]
    assert ask(trials, made) == Next("confirmation", "checkpointing")
    assert ask([*trials, trial(made, "probe", 7, "batch-16x4"), trial(made, "probe", 8, "batch-16x4"),
                trial(made, "probe", 9, "batch-16x4")], made) == DECIDED  # fmt: skip


OUTCOMES = st.sampled_from(["completed", "completed", "oom", "training_failed", "timeout", "lost", "killed"])


@given(
    st.integers(4, 10),
    st.integers(1, 3),
    st.booleans(),
    st.lists(OUTCOMES, min_size=12, max_size=12),
    st.integers(1, 3),
)
@settings(max_examples=150, deadline=None)
def test_whatever_happens_a_campaign_ends_within_its_budget(total, confirmations, control, outcomes, full):
    from watcherml.contract.contract import VerificationRequirements
    from watcherml.errors import InvalidValue

    try:
        made = plan(
            budget=RecoveryBudget(max_trials=total, max_full_trials=full),
            verification=VerificationRequirements(50, (), confirmations),
            control=control,
        )
    except InvalidValue:
        return  # numbers that do not hold together are refused before anything runs
    trials = []
    while isinstance(step := ask(trials, made), Next):
        assert len(trials) < total, "more trials than the contract allows"
        outcome = outcomes[len(trials)]
        if step.role == "control":
            outcome = "oom" if outcome == "completed" else outcome
        trials.append(trial(made, step.role, len(trials) + 1, step.proposal_id, outcome=outcome))
    verdict = verify(CAMPAIGN, made, (), tuple(trials), DECIDED)
    assert verdict.reason_code != "broken_chain"
    roles = [one.request.role for one in trials if one.result.outcome == "completed"]
    if verdict.status == "verified":
        assert roles.count("confirmation") >= confirmations and "full" in roles
    known = [one.request.role for one in trials if one.result.outcome != "lost"]
    assert known.count("probe") + known.count("control") <= made.contract.budget.max_probe_trials
    assert known.count("full") <= full and len(trials) <= total


def test_one_probe_is_kept_for_the_control_at_the_end():
    made = plan(budget=RecoveryBudget(max_trials=8, max_probe_trials=4, max_full_trials=1))
    trials = [
        trial(made, "control", 1, outcome="oom"),
        trial(made, "probe", 2, "batch-32x2", outcome="oom"),
        trial(made, "probe", 3, "checkpointing", outcome="oom"),
    ]
    assert ask(trials, made) == DECIDED
    lost = trial(made, "probe", 2, "batch-32x2", outcome="lost")
    assert ask([trials[0], lost, trials[2]], made) == Next("probe", "batch-32x2")
    bare = plan(budget=RecoveryBudget(max_trials=8, max_probe_trials=4, max_full_trials=1), control=False)
    assert isinstance(ask([trial(bare, "probe", n, i, outcome="oom") for n, i in
                           ((1, "batch-32x2"), (2, "checkpointing"), (3, "batch-16x4"))], bare), Next)  # fmt: skip


def test_the_control_is_repeated_at_the_end_where_there_is_room():
    made = plan(budget=RecoveryBudget(max_full_trials=1))
    good = good_trials(made)
    assert ask(good, made) == Next("control", None)
    for outcome in ("oom", "completed", "timeout", "training_failed"):
        assert ask([*good, trial(made, "control", 6, outcome=outcome)], made) == DECIDED
    tight = plan(budget=RecoveryBudget(max_trials=5, max_probe_trials=2, max_full_trials=1))
    assert ask(good_trials(tight), tight) == DECIDED


def test_after_a_closing_control_that_passed_nothing_more_is_run():
    made = plan()
    trials = [*good_trials(made), trial(made, "control", 6)]
    assert ask(trials, made) == DECIDED
    assert verify(CAMPAIGN, made, (), tuple(trials), DECIDED).reason_code == "source_failure_not_reproduced"


def test_checkpointing_that_saves_nothing_gets_no_full_trial_and_no_confirmation():
    """As the verdict has it: what the verifier will not verify takes no place from a candidate that it may."""
    made = plan(verification=VerificationRequirements(50, (), 2, 60 * MIB - 1))
    idle = {"peak": Peak("simulated", "tracker", 59 * MIB, None)}
    good = {"peak": Peak("simulated", "tracker", 50 * MIB, None)}
    combined = "batch-16x4+checkpointing"
    begun = (trial(made, "control", 1, outcome="oom"), trial(made, "probe", 2, "batch-16x4"),
             trial(made, "probe", 3, combined, **idle))  # fmt: skip
    probed = (*begun, trial(made, "probe", 4, "batch-4x16", **good))
    while isinstance(found := ask(probed, made), Next) and found.role == "probe":
        probed = (*probed, trial(made, "probe", len(probed) + 1, found.proposal_id, outcome="oom"))
    assert found == Next("full", "batch-4x16")
    fulls = (*probed, trial(made, "full", 8, combined, **idle), trial(made, "full", 9, "batch-4x16", **good))
    assert ask(fulls, made) == Next("confirmation", "batch-4x16")
    alone = (*begun, trial(made, "full", 8, combined, **idle))
    found = verify(CAMPAIGN, made, (), alone, DECIDED)
    assert (found.status, found.reason_code) == ("not_recovered", "no_eligible_candidate")
