"""A cause that refuses and a person who insists: nothing automatic, and every proposal says what it is run despite."""

import pytest
from builders import CAMPAIGN, DECIDED, approve, good_trials, plan, planned, source, trial

from watcherml.campaign.decide import Next, decide
from watcherml.contract.permissions import InterventionPermissions
from watcherml.errors import InvalidRecord, InvalidValue
from watcherml.protocol.plan import RecoveryPlan, Refusing, RuledOut, Source
from watcherml.report.html import html_plan, html_verdict
from watcherml.report.text import text_plan, text_verdict
from watcherml.verdict.verify import verify

LEAK = Refusing("C10", "leak across steps", "8.57 GiB piled up over the steps; 400 MiB were missing.")
GRADS = Refusing("C16a", "evaluation with gradients", "Evaluation with gradients on keeps 2.00 GiB.")
NEIGHBOUR = Refusing("C4", "another process holds the memory", "Another process held 12.20 GiB.")
SENTENCE = "The card was 12.20 GiB short because another process held 12.20 GiB."
RULED_OUT = tuple(
    RuledOut(name, "C10", "C10 (leak across steps) rules it out: memory grows with every step.")
    for name in ("micro_batch_size", "gradient_accumulation_steps", "gradient_checkpointing")
)


def insisted(*causes):
    return tuple(one.replace(insisted=True) for one in causes)


def despite(*causes, **changes):
    """The source of a failure whose causes a person overrules."""
    return source(refused_by=insisted(*causes), supports=(), **changes)


PLAN = planned(despite(LEAK, ruled_out=RULED_OUT))


def test_every_proposal_needs_approval_and_says_what_it_is_run_despite():
    usual = {one.proposal_id for one in plan().proposals}
    assert {one.proposal_id for one in PLAN.proposals} == usual and len(usual) > 5
    assert {one.authority for one in PLAN.proposals} == {"approval_required"}
    for one in PLAN.proposals:
        assert any("despite C10 (leak across steps)" in words for words in one.cautions), one.cautions
    assert any("approve" in note and f"{LEAK.words}: {LEAK.sentence}" in note for note in PLAN.notes), PLAN.notes
    assert not any("--despite" in note for note in PLAN.notes)


def test_without_approval_nothing_runs_but_the_control():
    control = trial(PLAN, "control", 1, outcome="oom")
    assert decide(PLAN, (), frozenset(), ()) == Next("control", None)
    assert decide(PLAN, (), frozenset(), (control,)) == DECIDED
    verdict = verify(CAMPAIGN, PLAN, (), (control,), DECIDED)
    assert (verdict.status, verdict.reason_code) == ("not_recovered", "needs_approval")
    assert "despite C10" in verdict.sentence


def test_with_approval_it_is_verified_and_the_verdict_says_despite_what():
    given = (approve(PLAN, "batch-32x2"),)
    verdict = verify(CAMPAIGN, PLAN, given, good_trials(PLAN), DECIDED)
    assert verdict.status == "verified", verdict.sentence
    assert verdict.cause_addressed == "no" and "does not act on a cause" in verdict.sentence
    assert "despite C10 (leak across steps)" in verdict.sentence
    assert any("insisted on despite C10" in one.observed for one in verdict.checks if one.name.endswith("cause"))


def test_a_cause_that_is_addressed_beside_it_makes_it_no_cure():
    made = planned(despite(LEAK).replace(supports=("micro_batch_size",)))
    verdict = verify(CAMPAIGN, made, (approve(made, "batch-32x2"),), good_trials(made), DECIDED)
    assert verdict.status == "verified" and verdict.cause_addressed == "no"


def test_a_sentence_of_any_length_leaves_room_for_what_it_was_run_despite():
    made = planned(despite(*(LEAK.replace(cause=f"C{n}", sentence="x" * 1_900) for n in range(30))))
    verdict = verify(CAMPAIGN, made, (), (trial(made, "control", 1, outcome="oom"),), DECIDED)
    assert "despite C0 (leak across steps)" in verdict.sentence and len(verdict.sentence) <= 2_000
    assert all(len(words) <= 2_000 for one in made.proposals for words in one.cautions)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"include_approval_required": False}, "automatic proposals only"),
        ({"permissions": InterventionPermissions(False, True, True)}, "allow_approval_required"),
    ],
)
def test_where_approval_is_not_to_be_had_there_is_no_proposal_and_the_reason(options, words):
    made = planned(despite(LEAK), **options)
    assert made.proposals == () and sum(words in one.reason for one in made.skipped) > 5
    verdict = verify(CAMPAIGN, made, (), (), DECIDED)
    assert verdict.reason_code == "no_supported_intervention" and "approv" in verdict.sentence


def test_while_one_cause_still_refuses_nothing_is_proposed_and_every_flag_is_named():
    made = planned(source(refused_by=(*insisted(LEAK), GRADS)))
    assert made.proposals == ()
    (note,) = [one for one in made.notes if "--despite" in one]
    assert "--despite C10 --despite C16a" in note and "C16a still refuses" in note
    assert "--despite C10 --despite C16a" in verify(CAMPAIGN, made, (), (), DECIDED).sentence


@pytest.mark.parametrize(
    "made",
    [
        planned(source(refused_by=(LEAK,))),
        planned(source(refused_by=(NEIGHBOUR,), control_only=SENTENCE)),
        planned(source(refused_by=(LEAK.replace(sentence="x" * 1_990),))),
    ],
    ids=["refused", "control only", "at length"],
)
def test_a_refusal_names_the_flag_to_insist_with_in_every_face(made):
    flag = f"--despite {made.source.refused_by[0].cause}"
    assert made.proposals == ()
    for words in (text_plan(made), html_plan(made)):
        assert flag in " ".join(words.split())
    trials = (trial(made, "control", 1, outcome="oom"),) if made.runs_control_only else ()
    verdict = verify(CAMPAIGN, made, (), trials, DECIDED)
    assert verdict.reason_code == "no_supported_intervention" and flag in verdict.sentence
    for words in (text_verdict(verdict, made, ()), html_verdict(verdict, made, ())):
        assert flag in " ".join(words.split())


def test_insisting_on_memory_in_other_hands_tries_more_than_the_control():
    made = planned(despite(NEIGHBOUR))
    assert made.proposals and not made.runs_control_only
    passed = (trial(made, "control", 1),)
    assert decide(made, (), frozenset(), passed) == DECIDED
    verdict = verify(CAMPAIGN, made, (), passed, DECIDED)
    assert verdict.reason_code == "source_failure_not_reproduced"


# -- a plan that does not hold together does not exist

PROPOSAL = PLAN.proposals[0]
FORGED = {
    "an automatic proposal": (
        lambda d: d["proposals"][0].update(authority="automatic"), "authority", "approval_required"),
    "no caution": (lambda d: d["proposals"][0].update(cautions=[]), "cautions", "C10"),
    "a cause that nobody insisted on": (
        lambda d: d["source"]["refused_by"][0].update(insisted=False), "proposals", "none"),
    "another cause that nobody insisted on": (
        lambda d: d["source"]["refused_by"].append(GRADS.to_data()), "proposals", "none"),
    "the same cause twice": (
        lambda d: d["source"]["refused_by"].append(d["source"]["refused_by"][0]), "refused_by", "once"),
    "no cause at all": (lambda d: d["source"].update(refused_by=[]), "refused_by", "entries"),
    "the control alone": (lambda d: d["source"].update(control_only=SENTENCE), "control_only", "insisted"),
    "a flag that is no truth value": (
        lambda d: d["source"]["refused_by"][0].update(insisted=1), "insisted", "true or false"),
}  # fmt: skip


@pytest.mark.parametrize("edit", FORGED)
def test_a_plan_that_insists_otherwise_does_not_decode(edit):
    change, where, expected = FORGED[edit]
    data = PLAN.to_data()
    change(data)
    with pytest.raises(InvalidRecord) as refused:
        RecoveryPlan.from_data(data)
    assert where in str(refused.value) and expected in str(refused.value), refused.value


def test_plans_that_were_sealed_before_keep_their_bytes():
    made = plan()
    assert "refused_by" not in made.to_json() and "horizon" not in made.to_json()
    assert RecoveryPlan.from_json(made.to_json()).digest == made.digest
    assert Source.from_json(PLAN.source.to_json()).refused_by == insisted(LEAK)


# -- the horizon of memory that piles up


@pytest.mark.parametrize(
    ("proposal_id", "steps"),
    [
        ("batch-32x2", 386),  # as many samples in a step leave as much behind
        ("checkpointing", 386),
        ("sequence-64", 772),
        ("sequence-32", 1_544),
    ],
)
def test_a_run_has_to_reach_the_step_that_no_change_of_this_growth_survives(proposal_id, steps):
    made = planned(source(horizon_step=386))
    assert made.horizon(made.proposal(proposal_id)) == steps
    assert any("386" in note for note in made.notes), made.notes
    assert plan().horizon(plan().proposal(proposal_id)) is None


def test_half_the_samples_in_a_step_take_twice_as_long():
    """The worked leak: half the batch lasts to step 613, and 500 steps of it would have proved nothing."""
    config = {"batch_size": 64, "training_steps": 50}  # nothing to accumulate with
    made = planned(source(config, horizon_step=386))
    half = next(one for one in made.proposals if one.effective_batch == "changed")
    assert [change.after for change in half.changes] == [32]
    assert made.horizon(half) == 772 > 613


def test_a_horizon_beyond_all_numbers_is_still_a_number():
    made = planned(source(horizon_step=10**12))
    assert made.horizon(made.proposal("sequence-32")) == 10**12
    with pytest.raises(InvalidValue):
        source(horizon_step=10**12 + 1)
