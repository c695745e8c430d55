"""The verdict: what is verified, why a campaign is not, and in which words."""

import pytest
from builders import (
    CAMPAIGN,
    CONFIG,
    DECIDED,
    MIB,
    approve,
    chain,
    good_trials,
    plan,
    planned,
    source,
    trial,
)
from forged import BLIND, CUDA, DIGEST, GOOD, PLAN, ask, everywhere, measured, swap

from watcherml.contract.budget import RecoveryBudget
from watcherml.contract.identity import CodeIdentity
from watcherml.contract.permissions import InterventionPermissions
from watcherml.protocol.plan import RuledOut, Trait
from watcherml.protocol.result import KnobReading, Peak, Progress, Trial
from watcherml.protocol.verdict import Ending
from watcherml.verdict.headroom import near_limit
from watcherml.verdict.rank import rank
from watcherml.verdict.verify import verify


def judge(trials, authorizations=(), made=PLAN, ending=DECIDED):
    return verify(CAMPAIGN, made, authorizations, trials, ending)


def test_a_whole_chain_is_verified_and_says_on_what():
    verdict = judge(GOOD)
    assert (verdict.status, verdict.reason_code) == ("verified", "verified_recovery")
    assert verdict.candidate_id == "batch-32x2" and verdict.config["batch_size"] == 32
    assert verdict.confirmation_run_ids == ("run-4", "run-5")
    assert "simulated" in verdict.sentence and verdict.device_kind == "simulated"
    assert verdict.cause_addressed == "yes"
    assert all(check.outcome == "pass" for check in verdict.checks)


def test_data_that_the_failed_run_recorded_must_be_the_same():
    made = planned(source(dataset_fingerprint=DIGEST))

    def on(fingerprint, control=DIGEST):
        trials = everywhere(good_trials(made), identity=measured(dataset_fingerprint=fingerprint))
        trials = swap(0, trials, identity=measured(dataset_fingerprint=control))
        return judge(trials, made=made).reason_code

    assert on(DIGEST) == "verified_recovery"
    assert on(None) == on("sha256:" + "2" * 64) == "workload_changed"
    assert on(DIGEST, None) == on(DIGEST, "sha256:" + "2" * 64) == "workload_differs"


def test_an_approved_semantic_change_is_verified_and_an_unapproved_one_is_not():
    trials = good_trials(PLAN, "sequence-64")
    assert judge(trials, (approve(PLAN, "sequence-64"),)).status == "verified"
    assert judge(trials, (approve(PLAN, "sequence-32"),)).status == "not_recovered"
    assert judge(trials).reason_code == "confirmation_failed"
    other = plan(max_proposals=15)
    assert judge(trials, (approve(other, "sequence-64"),)).reason_code == "broken_chain"


# What the supervisor's end left of each trial of a campaign.
LOST = tuple(trial(PLAN, one.request.role, 11 + number, one.request.proposal_id, "lost", execution_id=None)
             for number, one in enumerate(GOOD))  # fmt: skip

REASONS = {
    "no control": (GOOD[1:], "stopped", "control_missing"),
    "control passed": (swap(0, outcome="completed", failure=None), "not_recovered", "source_failure_not_reproduced"),
    "control timed out": (swap(0, outcome="timeout"), "stopped", "control_inconclusive"),
    "control failed otherwise": (swap(0, outcome="training_failed"), "stopped", "control_failed_differently"),
    "control passed with other code": (
        swap(0, outcome="completed", failure=None, identity=measured(code=CodeIdentity({"ent.py": DIGEST}))),
        "stopped", "workload_differs"),
    "a trial of another plan": (ask(4, plan_digest=DIGEST), "stopped", "broken_chain"),
    "one confirmation short": (GOOD[:4], "not_recovered", "confirmations_incomplete"),
    "one confirmation lost": ((*GOOD[:4], LOST[3]), "not_recovered", "confirmations_incomplete"),
    "one confirmation failed and one lost": (
        (*swap(3, outcome="oom")[:4], LOST[3]), "not_recovered", "confirmation_failed"),
    "full trial lost": ((*GOOD[:2], LOST[2]), "not_recovered", "no_full_trial"),
    "a probe failed and a full trial was lost": (
        (*GOOD[:2], LOST[2], trial(PLAN, "probe", 7, "batch-16x4", "oom")), "not_recovered", "no_full_trial"),
    "probe lost": ((GOOD[0], LOST[1]), "not_recovered", "no_candidate_tried"),
    "a probe failed and another was lost": (
        (*swap(1, outcome="oom")[:2], trial(PLAN, "probe", 7, "batch-16x4", "lost")),
        "not_recovered", "no_candidate_passed_probe"),
    "nothing but a control that was lost": (LOST[:1], "stopped", "control_inconclusive"),
    "no confirmation": (GOOD[:3], "not_recovered", "confirmations_incomplete"),
    "confirmation timed out": (swap(4, outcome="timeout"), "not_recovered", "confirmation_failed"),
    "full trial broke a guard": (
        swap(2, metrics={"steps_completed": 50.0, "val_loss": 1.0})[:3], "not_recovered", "no_eligible_candidate"),
    "no probe survived": (swap(1, outcome="oom")[:2], "not_recovered", "no_candidate_passed_probe"),
    "nothing but the control": (GOOD[:1], "not_recovered", "no_candidate_tried"),
    "nothing at all": ((), "stopped", "control_missing"),
}  # fmt: skip


@pytest.mark.parametrize("case", REASONS)
def test_why_a_campaign_is_not_verified_has_a_code_and_a_sentence(case):
    trials, status, code = REASONS[case]
    verdict = judge(trials)
    assert (verdict.status, verdict.reason_code) == (status, code)
    assert len(verdict.sentence) > 20 and any(check.outcome != "pass" for check in verdict.checks)


SENTENCES = [
    ((*GOOD[:4], *LOST[3:]), "1 of 2 confirmations", "2 trials were lost"),
    ((*GOOD[:2], LOST[2]), "passed its probe, but no full trial", "1 trial was lost"),
    ((GOOD[0], LOST[1]), "tried to the end", "1 trial was lost"),
]


@pytest.mark.parametrize(("trials", "words", "lost"), SENTENCES)
def test_what_was_lost_with_its_supervisor_is_not_said_to_have_failed(trials, words, lost):
    sentence = judge(trials).sentence
    assert words in sentence and lost in sentence
    assert "did not hold" not in sentence and "survived" not in sentence


@pytest.mark.parametrize(
    ("trials", "code"),
    [((*GOOD[:4], LOST[3]), "confirmation_failed"), ((*GOOD[:2], LOST[2]), "no_candidate_passed_probe")],
)
def test_version_3_had_other_reasons_for_what_was_lost_and_its_records_keep_them(trials, code):
    found = verify(CAMPAIGN, PLAN, (), trials, DECIDED, version=3)
    assert found.reason_code == code and "lost" not in found.sentence


def test_batch_norm_that_a_trial_meets_needs_permission_and_approval():
    met = everywhere(GOOD, traits=("batch_norm",))
    verdict = judge(met[:3])
    assert (verdict.status, verdict.reason_code) == ("not_recovered", "needs_approval")
    assert "batch-32x2" in verdict.sentence and "BatchNorm" in verdict.sentence
    assert judge(met[:2]).reason_code == "needs_approval"  # the probe is enough to know it
    assert judge(met, (approve(PLAN, "batch-32x2"),)).status == "verified"
    closed = plan(permissions=InterventionPermissions(True, False, False))
    trials = everywhere(good_trials(closed), traits=("batch_norm",))
    assert judge(trials, (approve(closed, "batch-32x2"),), made=closed).reason_code != "verified_recovery"


def test_batch_norm_that_the_plan_named_is_no_news_and_checkpointing_does_not_care():
    known = planned(source(traits=(Trait("batch_norm", "seen", "BatchNorm2d"),)))
    trials = everywhere(good_trials(known), traits=("batch_norm",))
    assert judge(trials, (approve(known, "batch-32x2"),), made=known).status == "verified"
    assert judge(trials, made=known).status == "not_recovered"
    assert judge(everywhere(good_trials(PLAN, "checkpointing"), traits=("batch_norm",))).status == "verified"


def test_a_control_that_was_read_back_counts_and_one_that_cannot_be_seen_is_not_held_against_a_candidate():
    read = everywhere(GOOD, knobs=(KnobReading("micro_batch_size", "in_effect", "32 rows"), BLIND[1]))
    verdict = judge(read)
    assert verdict.status == "verified"
    shown = {one.name: one.observed for one in verdict.checks if ": knob." in one.name}
    assert shown["full: knob.micro_batch_size"] == "32 rows"
    assert shown["full: knob.gradient_accumulation_steps"] == "not observable: no torch"
    assert "Whether it took effect could not be observed: gradient_accumulation_steps." in verdict.sentence
    assert judge(everywhere(GOOD, knobs=BLIND)).status == "verified"


def test_a_trial_that_did_not_end_well_is_not_asked_for_its_readings():
    trials = (GOOD[0], trial(PLAN, "probe", 2, "batch-32x2", outcome="oom", knobs=()))
    assert not [one for one in judge(trials).checks if "knob" in one.name]


def test_a_candidate_that_saves_memory_by_checkpointing_is_verified():
    from forged import _checkpointing_campaign

    assert judge(_checkpointing_campaign(56 * MIB).trials).status == "verified"
    alone = everywhere(good_trials(PLAN, "checkpointing"), peak=Peak("simulated", "t", 79 * MIB, None))
    assert judge(alone).status == "verified"  # nothing like it was tried without


def peak(**changes):
    return Peak("cuda", "t", 60 * MIB, 70 * MIB, **changes)


CLOSE = [
    (peak(), 96, ()),
    (Peak("simulated", "t", 94 * MIB, None), 96, ("left 2.1 % (2.0 MiB) of the device",)),
    (Peak("simulated", "t", 94 * MIB, None), None, ()),
    (Peak("simulated", "t", 97 * MIB, None), 96, ("left less than nothing of the device",)),
    (peak(limit_bytes=100 * MIB, headroom_bytes=2 * MIB), 96, ("left 2.0 % (2.0 MiB) of the card",)),
    (peak(limit_bytes=100 * MIB, headroom_bytes=3 * MIB), 71, ()),
    (peak(limit_bytes=100 * MIB, headroom_bytes=0), None, ("left 0.0 % (0.0 MiB) of the card",)),
    (peak(retries=9, retrying_steps=1), 96, ()),
    (peak(retries=3, retrying_steps=3), 96, ("made the allocator retry in 3 consecutive steps",)),
    (peak(limit_bytes=100 * MIB, headroom_bytes=MIB, retrying_steps=2), 96,
     ("left 1.0 % (1.0 MiB) of the card", "made the allocator retry in 2 consecutive steps")),
    (None, 96, ()),
]  # fmt: skip


@pytest.mark.parametrize(("measured_peak", "budget", "signs"), CLOSE)
def test_what_comes_close_to_the_limit_is_named(measured_peak, budget, signs):
    result = trial(PLAN, "full", 1, "batch-32x2", peak=measured_peak).result
    assert near_limit(result, budget and budget * MIB) == signs


def test_what_came_close_to_the_limit_is_ranked_last_and_says_so():
    made = planned(source(device=CUDA), CUDA, verification=PLAN.contract.verification.replace(max_peak_vram_bytes=None))
    close = peak(limit_bytes=96 * MIB, headroom_bytes=2 * MIB, retries=3, retrying_steps=3)
    roomy = peak(limit_bytes=96 * MIB, headroom_bytes=20 * MIB, retries=0, retrying_steps=0)
    fulls = (trial(made, "full", 3, "batch-32x2", peak=close), trial(made, "full", 6, "batch-16x4", peak=roomy))
    order = rank(made, (), fulls).order
    assert [one.proposal_id for one in order] == ["batch-16x4", "batch-32x2"]
    assert [one.key[0].value for one in order] == [0.0, 1.0]
    verdict = judge(everywhere(good_trials(made), peak=close), made=made)
    assert verdict.status == "verified"
    assert (
        "It is close to the limit: it left 2.1 % (2.0 MiB) of the card and made the allocator retry in 3 consecutive"
        in verdict.sentence
    )
    assert "close to the limit" not in judge(everywhere(good_trials(made), peak=roomy), made=made).sentence


def test_an_allocator_setting_is_verified_only_if_it_was_seen_in_effect():
    from forged import _allocator_campaign

    made = _allocator_campaign("in_effect")
    verdict = judge(made.trials, made.authorizations, made=made.plan)
    assert verdict.status == "verified" and "PYTORCH_ALLOC_CONF=expandable_segments:True" in verdict.sentence
    assert verdict.cause_addressed == "no" and verdict.config == CONFIG


def test_where_the_control_took_the_only_probe_none_is_asked_of_the_candidate():
    made = plan(budget=RecoveryBudget(max_probe_trials=1))
    good = good_trials(made)
    assert judge((good[0], *good[2:]), made=made).status == "verified"


@pytest.mark.parametrize("reason", ["stopped_by_user", "campaign_timeout", "gpu_seconds_exhausted", "supervisor_lost"])
def test_a_campaign_that_was_cut_short_is_stopped(reason):
    verdict = judge(GOOD, ending=Ending(reason, "because"))
    assert (verdict.status, verdict.reason_code) == ("stopped", reason) and "because" in verdict.sentence


def test_an_error_of_the_campaign_is_no_claim():
    assert judge(GOOD, ending=Ending("integration_error", "disk")).status == "integration_error"


def test_a_lost_confirmation_proves_nothing_either_way():
    lost = trial(PLAN, "confirmation", 6, "batch-32x2", outcome="lost", execution_id=None)
    assert judge((*GOOD, lost)).status == "verified"
    assert judge((*GOOD[:4], lost)).status == "not_recovered"


def test_a_control_that_ever_passed_counts_even_if_another_failed():
    passed = trial(PLAN, "control", 6)
    assert judge((*GOOD, passed)).reason_code == "source_failure_not_reproduced"
    slow = trial(PLAN, "control", 6, outcome="timeout")
    assert judge((*GOOD, slow)).status == "verified"


def test_nothing_to_try_and_nothing_approved():
    empty = plan({"lr": 0.1})
    assert judge((), made=empty).reason_code == "no_supported_intervention"
    waiting = plan({"sequence_length": 128})
    control = (trial(waiting, "control", 1, outcome="oom"),)
    assert judge(control, made=waiting).reason_code == "needs_approval"


def test_failed_probes_are_counted_in_the_sentence():
    trials = (GOOD[0], trial(PLAN, "probe", 2, "batch-32x2", outcome="oom"))
    verdict = judge(trials)
    assert verdict.reason_code == "no_candidate_passed_probe"
    assert f"1 of {len(PLAN.proposals)}" in verdict.sentence


def test_a_claim_counts_only_where_nobody_could_watch_and_is_said():
    trials = tuple(
        Trial(one.request, one.result.replace(progress=Progress(50, "claimed", 50.0)))
        if one.result.outcome == "completed"
        else one
        for one in GOOD
    )
    verdict = judge(trials)
    assert verdict.status == "verified" and "own claim" in verdict.sentence


def test_without_a_control_the_sentence_says_so():
    made = plan(control=False)
    verdict = judge(good_trials(made)[1:], made=made)
    assert verdict.status == "verified" and "control trial was switched off" in verdict.sentence


def test_ranking_is_lexicographic_and_records_every_factor():
    ceiling = plan(verification=PLAN.contract.verification.replace(max_peak_vram_bytes=None))
    approval = (approve(ceiling, "sequence-64"),)
    trials = (
        trial(ceiling, "full", 1, "batch-32x2", peak=Peak("simulated", "t", 95 * MIB, None), wall_seconds=1.0),
        trial(ceiling, "full", 2, "sequence-64", wall_seconds=2.0),
        trial(ceiling, "full", 3, "checkpointing", wall_seconds=12.6),
        trial(ceiling, "full", 4, "batch-16x4", wall_seconds=10.0),
        trial(ceiling, "full", 5, "batch-8x8", outcome="oom"),
    )
    ranking = rank(ceiling, approval, trials)
    assert [one.proposal_id for one in ranking.order] == ["batch-16x4", "checkpointing", "sequence-64", "batch-32x2"]
    assert [one.proposal_id for one in ranking.ineligible] == ["batch-8x8"]
    assert "outcome: required completed, observed oom" in ranking.ineligible[0].reasons[0]
    names = ["little_headroom", "cause_not_addressed", "semantic", "effective_batch", "risk", "slower", "plan_order"]
    assert all([factor.name for factor in one.key] == names for one in ranking.order)


def test_a_difference_in_time_below_a_quarter_is_noise_and_the_plan_decides():
    def order(checkpointing, batch):
        trials = (
            trial(PLAN, "full", 1, "checkpointing", wall_seconds=checkpointing),
            trial(PLAN, "full", 2, "batch-32x2", wall_seconds=batch),
        )
        return [one.proposal_id for one in rank(PLAN, (), trials).order]

    assert order(10.0, 12.4) == order(10.0, 10.0) == order(12.4, 10.0) == ["batch-32x2", "checkpointing"]
    assert order(10.0, 12.6) == ["checkpointing", "batch-32x2"]
    assert order(0.0, 0.0) == ["batch-32x2", "checkpointing"]


def test_a_candidate_that_acts_on_no_diagnosed_cause_is_ranked_behind_one_that_does():
    made = planned(source(supports=("gradient_checkpointing",)))
    trials = (trial(made, "full", 1, "batch-32x2"), trial(made, "full", 2, "checkpointing"))
    assert [one.proposal_id for one in rank(made, (), trials).order] == ["checkpointing", "batch-32x2"]


def test_the_chain_carries_its_own_verdict():
    made = chain(PLAN, GOOD)
    assert made.verdict == judge(made.trials) and made.ranking == rank(PLAN, (), made.trials)


def test_a_request_may_differ_by_a_twentieth_and_no_more():
    from forged import _failure

    near = [swap(0, failure=_failure(requested_bytes=size)) for size in (int(12 * MIB * 0.951), int(12 * MIB * 1.049))]
    assert all(judge(trials).status == "verified" for trials in near)


def test_the_smallest_budget_with_a_probe_asks_for_it():
    made = plan(budget=RecoveryBudget(max_probe_trials=2))
    good = good_trials(made)
    assert judge(good, made=made).status == "verified"
    assert judge((good[0], *good[2:]), made=made).status == "not_recovered"


def test_a_change_of_two_controls_of_which_one_is_ruled_out_may_still_act():
    ruled = (RuledOut("gradient_accumulation_steps", "C9", "memory waits for another stream"),)
    made = PLAN.replace(source=PLAN.source.replace(ruled_out=ruled))
    assert judge(good_trials(made), made=made).status == "verified"


@pytest.mark.parametrize(
    ("permissions", "trait", "status"),
    [
        ((True, True), "batch_norm", "verified"),
        ((True, False), "batch_norm", "not_recovered"),
        ((False, True), "batch_norm", "not_recovered"),
        ((True, False), "mean_of_means", "verified"),
        ((False, False), "mean_of_means", "not_recovered"),
    ],
)
def test_approving_another_update_takes_the_permission_too(permissions, trait, status):
    made = plan(permissions=InterventionPermissions(*permissions, False))
    trials = everywhere(good_trials(made), traits=(trait,))
    assert judge(trials, (approve(made, "batch-32x2"),), made=made).status == status


CONTROLS = [
    ((), "once, at the beginning."),
    (({"outcome": "oom", "started_at": 1002.0},), "before and after."),
    (({"outcome": "timeout", "started_at": 1002.0},), "once, at the beginning. 1 other control gave no answer."),
]


@pytest.mark.parametrize(("closing", "words"), CONTROLS)
def test_the_sentence_says_which_controls_there_were(closing, words):
    later = [trial(PLAN, "control", 6 + number, **changes) for number, changes in enumerate(closing)]
    verdict = judge((*GOOD, *later))
    assert verdict.status == "verified" and f"The control reproduced it {words}" in verdict.sentence


def test_a_long_key_leaves_room_for_every_reservation():
    made = plan({"k" * 1_900: {"batch_size": 64}}, control=False)
    verdict = judge(good_trials(made, "batch-32")[1:], made=made)
    assert verdict.status == "verified" and len(verdict.sentence) < 700
    assert "effective batch changes" in verdict.sentence and "switched off" in verdict.sentence
