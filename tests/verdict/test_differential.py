"""Eligibility, ranking and verdict depend on what is there, never on the order in which it comes."""

import random

from builders import approve, good_trials, trial
from forged import FORGED, GOOD, PLAN, Campaign, simple
from hypothesis import given, settings
from hypothesis import strategies as st

from watcherml.protocol.authorization import Authorization
from watcherml.verdict.eligible import probe_checks, trial_checks
from watcherml.verdict.rank import rank
from watcherml.verdict.verify import verify

CAMPAIGNS = [row for rows in FORGED.values() for row in rows] + [simple(GOOD)]
APPROVED = Campaign(
    PLAN,
    (
        *good_trials(PLAN, "sequence-64"),
        trial(PLAN, "full", 6, "checkpointing", wall_seconds=9.0),
        trial(PLAN, "full", 7, "batch-16x4", outcome="lost"),
    ),
    (approve(PLAN, "sequence-64"), approve(PLAN, "sequence-64").replace(approved_by="b"), approve(PLAN, "batch-16x4")),
)


def everything(campaign):
    """Return eligibility of every trial, the ranking and the verdict as bytes."""
    eligibility = {
        (one.request.trial_id, one.request.digest, one.result.digest): tuple(
            check.to_json() for judge in (trial_checks, probe_checks)
            for check in judge(campaign.plan, campaign.authorizations, one)
        )
        for one in campaign.trials
    }  # fmt: skip
    parts = (campaign.plan, campaign.authorizations, campaign.trials)
    return (
        sorted(eligibility.items()),
        rank(*parts).to_json(),
        verify(campaign.campaign_id, *parts, campaign.ending).to_json(),
    )


def shuffled(campaign, seed):
    trials, given_by = list(campaign.trials), list(campaign.authorizations)
    random.Random(seed).shuffle(trials)
    random.Random(seed + 1).shuffle(given_by)
    return Campaign(campaign.plan, tuple(trials), tuple(given_by), campaign.ending, campaign.campaign_id)


@settings(deadline=None)
@given(st.sampled_from(range(len(CAMPAIGNS))), st.integers(0, 10_000))
def test_a_shuffled_campaign_gives_the_same_bytes(index, seed):
    assert everything(shuffled(CAMPAIGNS[index], seed)) == everything(CAMPAIGNS[index])


def test_a_shuffled_campaign_with_two_approvals_gives_the_same_bytes():
    assert all(everything(shuffled(APPROVED, seed)) == everything(APPROVED) for seed in range(40))
    assert "approved by a@example.org" in everything(APPROVED)[2]


def test_values_that_went_through_a_file_give_the_same_bytes():
    plan = type(PLAN).from_json(APPROVED.plan.to_json())
    trials = tuple(type(one).from_data(one.to_data()) for one in APPROVED.trials)
    approvals = tuple(Authorization.from_json(one.to_json()) for one in APPROVED.authorizations)
    assert everything(Campaign(plan, trials, approvals)) == everything(APPROVED)
