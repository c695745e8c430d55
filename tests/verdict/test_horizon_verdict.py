"""A leak that only shows later: a run that ends before is void, by whatever name its steps are counted."""

import pytest
from builders import DECIDED, approve, good_trials, planned, source
from forged import LEAKING, LEAKING_GOOD, Campaign, everywhere, ran, swap

from watcherml.verdict.rank import rank
from watcherml.verdict.verify import verify


def judge(campaign):
    return verify(campaign.campaign_id, campaign.plan, campaign.authorizations, campaign.trials, campaign.ending)


def campaign(steps, proposal_id="batch-32x2", made=LEAKING, counted="optimizer"):
    trials = everywhere(good_trials(made, proposal_id), **ran(steps, counted))
    return Campaign(made, trials, (approve(made, proposal_id),), DECIDED)


@pytest.mark.parametrize(
    ("proposal_id", "steps", "counted", "status"),
    [
        ("batch-32x2", 386, "optimizer", "verified"),
        ("batch-32x2", 386, "marks", "verified"),
        ("batch-32x2", 385, "optimizer", "not_recovered"),
        ("batch-32x2", 1_000, "claimed", "not_recovered"),
        ("sequence-64", 772, "optimizer", "verified"),
        ("sequence-64", 500, "optimizer", "not_recovered"),
    ],
)
def test_a_run_counts_from_the_step_that_the_growth_does_not_survive(proposal_id, steps, counted, status):
    verdict = judge(campaign(steps, proposal_id, counted=counted))
    assert verdict.status == status, verdict.sentence
    if status == "verified":
        assert f"by step {LEAKING.horizon(LEAKING.proposal(proposal_id))}" in verdict.sentence
    else:
        assert verdict.reason_code == "horizon_not_reached" and "void" in verdict.sentence


def test_the_verdict_says_how_long_the_run_was_and_has_to_be():
    sentence = judge(campaign(385)).sentence
    assert "demo-run-1" in sentence and "385 steps" in sentence and "386" in sentence
    sentence = judge(campaign(1_000, counted="claimed")).sentence
    assert "watcherml.step()" in sentence and "1,000 steps" not in sentence


def test_a_confirmation_that_is_too_short_is_void_as_well():
    verdict = judge(Campaign(LEAKING, swap(4, LEAKING_GOOD, **ran(60))))
    assert (verdict.status, verdict.reason_code) == ("not_recovered", "horizon_not_reached")
    assert "60 steps" in verdict.sentence


def test_a_void_full_trial_is_not_worth_a_confirmation():
    made = campaign(100)
    ranking = rank(made.plan, made.authorizations, made.trials)
    assert ranking.order == () and any("horizon" in reason for one in ranking.ineligible for reason in one.reasons)


@pytest.mark.parametrize(("changes", "code"), [({"metrics": {"steps_completed": 100}}, "no_eligible_candidate"),
                                               ({"outcome": "oom"}, "no_eligible_candidate")])  # fmt: skip
def test_what_fails_for_another_reason_is_not_called_too_short(changes, code):
    made = campaign(100)
    trials = tuple(one for one in everywhere(made.trials, **changes) if one.request.role != "confirmation")
    assert judge(Campaign(LEAKING, trials)).reason_code == code


def test_insisting_weakens_no_horizon():
    from watcherml.protocol.plan import Refusing

    told = source(horizon_step=386, supports=(), refused_by=(Refusing("C10", "leak across steps", "It grows.", True),))
    made = planned(told)
    assert judge(campaign(385, made=made)).reason_code == "horizon_not_reached"
    verdict = judge(campaign(386, made=made))
    assert verdict.status == "verified" and verdict.cause_addressed == "no" and "despite C10" in verdict.sentence
