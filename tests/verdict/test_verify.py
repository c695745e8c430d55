"""The verdict: what is verified, and a table of campaigns that are not."""

import random

import pytest
from builders import (
    CAMPAIGN,
    CODE,
    DECIDED,
    DEVICE,
    MIB,
    approve,
    chain,
    good_trials,
    plan,
    result,
    trial,
)

from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.contract.identity import CodeIdentity
from watcherml.protocol.result import Failure, MeasuredIdentity, Peak, Progress, Trial
from watcherml.protocol.verdict import Ending
from watcherml.sealed.device import Device
from watcherml.verdict.rank import rank
from watcherml.verdict.verify import verify

PLAN = plan()
GOOD = good_trials(PLAN)


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
    from builders import contract, source

    from watcherml.planning.discover import discover
    from watcherml.planning.plan import make_plan

    recorded = source(dataset_fingerprint=DIGEST)
    capabilities, skipped = discover(recorded.config)
    made = make_plan(
        contract(recorded), recorded, capabilities, skipped, include_approval_required=True, max_proposals=9
    )

    def on(fingerprint):
        identity = MeasuredIdentity(fingerprint, None, None, "gpt", CODE)
        trials = [Trial(one.request, one.result.replace(identity=identity)) for one in good_trials(made)]
        return judge(tuple(trials), made=made).status

    assert on(DIGEST) == "verified"
    assert on(None) == on("sha256:" + "2" * 64) == "not_recovered"


def test_an_approved_semantic_change_is_verified_and_an_unapproved_one_is_not():
    trials = good_trials(PLAN, "sequence-64")
    assert judge(trials, (approve(PLAN, "sequence-64"),)).status == "verified"
    assert judge(trials, (approve(PLAN, "sequence-32"),)).status == "not_recovered"
    assert judge(trials).reason_code == "confirmation_failed"
    other = plan(max_proposals=15)
    assert judge(trials, (approve(other, "sequence-64"),)).reason_code == "broken_chain"


def swap(position, **changes):
    """Replace one good trial's result fields."""
    trials = list(GOOD)
    old = trials[position]
    trials[position] = Trial(old.request, old.result.replace(**changes))
    return tuple(trials)


def ask(position, **changes):
    """Replace one good trial's request, with a result that fits the new request."""
    trials = list(GOOD)
    made = trials[position].request.replace(**changes)
    trials[position] = Trial(made, result(made))
    return tuple(trials)


def without(position):
    return GOOD[:position] + GOOD[position + 1 :]


NO_IDENTITY = MeasuredIdentity(None, None, None, None, CODE)
DIGEST = "sha256:" + "1" * 64
CUDA = Device("cuda", "H", 96 * MIB)

LIES = {
    "no control": (without(0), "control_missing"),
    "control passed": (swap(0, outcome="completed", failure=None), "source_failure_not_reproduced"),
    "control timed out": (swap(0, outcome="timeout"), "control_inconclusive"),
    "control was killed": (swap(0, outcome="killed"), "control_inconclusive"),
    "control failed otherwise": (swap(0, outcome="training_failed"), "control_failed_differently"),
    "control of another class": (
        swap(0, failure=Failure("cuda_out_of_memory", "", "E", "m", 12 * MIB, "forward")),
        "control_failed_differently"),
    "control asked for another size": (
        swap(0, failure=Failure("simulated_out_of_memory", "", "E", "m", 13 * MIB, "forward")),
        "control_failed_differently"),
    "control asked for an unknown size": (
        swap(0, failure=Failure("simulated_out_of_memory", "", "E", "m", None, "forward")),
        "control_failed_differently"),
    "control ran other code": (
        swap(0, identity=MeasuredIdentity(None, None, None, "gpt", CodeIdentity({"ent.py": DIGEST}))),
        "control_failed_differently"),
    "control passed with other code": (
        swap(0, outcome="completed", failure=None,
             identity=MeasuredIdentity(None, None, None, "gpt", CodeIdentity({"ent.py": DIGEST}))),
        "control_failed_differently"),
    "control whose code was not measured": (swap(0, identity=None), "control_failed_differently"),
    "control failed in another phase": (
        swap(0, failure=Failure("simulated_out_of_memory", "", "E", "m", 12 * MIB, "optimizer")),
        "control_failed_differently"),
    "no full trial": (without(2), "confirmation_failed"),
    "one confirmation short": (without(4), "confirmation_failed"),
    "confirmation ran out of memory": (swap(4, outcome="oom"), "confirmation_failed"),
    "confirmation timed out": (swap(4, outcome="timeout"), "confirmation_failed"),
    "confirmation exited": (swap(4, outcome="exited"), "confirmation_failed"),
    "confirmation without a metric": (swap(4, metrics={"steps_completed": 50.0}), "confirmation_failed"),
    "confirmation with a worse metric": (
        swap(4, metrics={"steps_completed": 50.0, "val_loss": 0.4500001}), "confirmation_failed"),
    "confirmation with too few steps": (swap(4, progress=Progress(49, "optimizer", 49.0)), "confirmation_failed"),
    "confirmation that did nothing": (swap(4, progress=Progress(0, "none", 50.0)), "confirmation_failed"),
    "confirmation that claims more than was counted": (
        swap(4, progress=Progress(50, "optimizer", 51.0)), "confirmation_failed"),
    "confirmation without a claim": (swap(4, progress=Progress(50, "optimizer", None)), "confirmation_failed"),
    "confirmation above the ceiling": (
        swap(4, peak=Peak("simulated", "t", 80 * MIB + 1, None)), "confirmation_failed"),
    "confirmation without a peak": (swap(4, peak=None), "confirmation_failed"),
    "peak of another device": (swap(4, peak=Peak("cuda", "t", 1, 1)), "confirmation_failed"),
    "confirmation on CUDA": (swap(4, device=CUDA), "confirmation_failed"),
    "confirmation with a larger budget": (
        swap(4, device=DEVICE.replace(budget_bytes=97 * MIB)), "confirmation_failed"),
    "confirmation without a device": (swap(4, device=None), "confirmation_failed"),
    "confirmation without identity": (swap(4, identity=None), "confirmation_failed"),
    "confirmation without the declared identity": (swap(4, identity=NO_IDENTITY), "confirmation_failed"),
    "confirmation of another model": (
        swap(4, identity=MeasuredIdentity(None, None, None, "bert", CODE)), "confirmation_failed"),
    "confirmation of other code": (
        swap(4, identity=MeasuredIdentity(None, None, None, "gpt", CodeIdentity({"ent.py": "sha256:" + "d" * 64}))),
        "confirmation_failed"),
    "a late import that was edited between two trials": (
        swap(3, identity=MeasuredIdentity(None, None, None, "gpt", CodeIdentity({**CODE.files, "late.py": DIGEST})))[:4]
        + swap(4, identity=MeasuredIdentity(
            None, None, None, "gpt", CodeIdentity({**CODE.files, "late.py": "sha256:" + "2" * 64})))[4:],
        "confirmation_failed"),
    "confirmation without an execution": (swap(4, execution_id=None), "confirmation_failed"),
    "confirmation of another request": (swap(4, request_digest="sha256:" + "0" * 64), "confirmation_failed"),
    "confirmation of another trial": (swap(4, trial_id="other"), "confirmation_failed"),
    "confirmation of another run": (swap(4, run_id="other"), "confirmation_failed"),
    "confirmation of another plan": (ask(4, plan_digest="sha256:" + "0" * 64), "confirmation_failed"),
    "confirmation of another contract": (ask(4, contract_digest="sha256:" + "0" * 64), "confirmation_failed"),
    "confirmation of another source": (ask(4, source_run_id="other"), "confirmation_failed"),
    "confirmation with an easier configuration": (ask(4, config={"batch_size": 1}), "confirmation_failed"),
    "confirmation that was cut short": (ask(4, max_steps=50), "confirmation_failed"),
    "confirmation in another environment": (ask(4, environment={"A": "b"}), "confirmation_failed"),
    "confirmation of another function": (ask(4, entrypoint=TrainingEntrypoint("ent:other")), "confirmation_failed"),
    "confirmation that counts another metric": (ask(4, progress_metric="epochs"), "confirmation_failed"),
    "confirmation asked of another device": (ask(4, device=CUDA), "confirmation_failed"),
    "confirmation under another digest": (ask(4, config_digest="sha256:" + "0" * 64), "confirmation_failed"),
    "confirmation of no candidate": (ask(4, proposal_id=None), "confirmation_failed"),
    "control on another device": (swap(0, device=CUDA), "control_failed_differently"),
    "confirmation of another campaign": (ask(4, campaign_id="other"), "broken_chain"),
    "full trial broke a guard": (swap(2, metrics={"steps_completed": 50.0, "val_loss": 1.0}), "confirmation_failed"),
    "the same trial twice": ((*GOOD[:4], GOOD[3]), "broken_chain"),
    "the same run twice": (ask(4, run_id="run-4"), "broken_chain"),
    "the same request twice": (ask(4, request_id="req-4"), "broken_chain"),
    "the same execution twice": (swap(4, execution_id=GOOD[3].result.execution_id), "broken_chain"),
    "more trials than allowed": (
        (*GOOD, *(trial(PLAN, "probe", n, "batch-16x4") for n in range(6, 12))), "broken_chain"),
    "nothing at all": ((), "control_missing"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_what_does_not_hold_is_never_verified(lie):
    trials, reason = LIES[lie]
    verdict = judge(trials)
    assert verdict.status != "verified" and verdict.reason_code == reason
    assert verdict.candidate_id is None and verdict.config is None and verdict.confirmation_run_ids == ()
    assert any(check.outcome != "pass" for check in verdict.checks)


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


def test_the_order_of_trials_does_not_matter():
    for seed in range(20):
        shuffled = list(GOOD)
        random.Random(seed).shuffle(shuffled)
        assert judge(tuple(shuffled)).to_json() == judge(GOOD).to_json()
        assert rank(PLAN, (), tuple(shuffled)).to_json() == rank(PLAN, (), GOOD).to_json()


def test_ranking_prefers_headroom_then_meaning_then_time():
    ceiling = plan(verification=PLAN.contract.verification.replace(max_peak_vram_bytes=None))
    approval = (approve(ceiling, "sequence-64"),)
    trials = (
        trial(ceiling, "full", 1, "batch-32x2", peak=Peak("simulated", "t", 95 * MIB, None), wall_seconds=1.0),
        trial(ceiling, "full", 2, "sequence-64", wall_seconds=2.0),
        trial(ceiling, "full", 3, "checkpointing", wall_seconds=9.0),
        trial(ceiling, "full", 4, "batch-16x4", wall_seconds=8.0),
        trial(ceiling, "full", 5, "batch-8x8", outcome="oom"),
    )
    ranking = rank(ceiling, approval, trials)
    assert [one.proposal_id for one in ranking.order] == ["batch-16x4", "checkpointing", "sequence-64", "batch-32x2"]
    assert [one.proposal_id for one in ranking.ineligible] == ["batch-8x8"]
    assert "outcome: required completed, observed oom" in ranking.ineligible[0].reasons[0]


def test_the_chain_carries_its_own_verdict():
    made = chain(PLAN, GOOD)
    assert made.verdict == judge(made.trials) and made.ranking == rank(PLAN, (), made.trials)
