"""A cause outside the configuration: nothing is proposed, the control alone runs, and what it shows is the verdict."""

import pytest
from builders import CAMPAIGN, DECIDED, plan, planned, source, trial

from watcherml.campaign.decide import Next, decide
from watcherml.errors import InvalidValue
from watcherml.protocol.plan import RecoveryPlan, Source
from watcherml.report.terms import plan_headline
from watcherml.verdict.verify import verify

SENTENCE = "The card was 12.20 GiB short because another process held 12.20 GiB."
PLAN = planned(source(control_only=SENTENCE))


def test_nothing_is_proposed_and_the_reason_is_listed():
    assert PLAN.proposals == () and PLAN.runs_control_only
    assert [(one.capability, one.reason) for one in PLAN.skipped] == [("every intervention", SENTENCE)]
    assert any("unchanged configuration" in note for note in PLAN.notes)
    assert "unchanged configuration" in plan_headline(PLAN, (), ())


def test_a_plan_that_proposes_something_beside_it_is_refused():
    with pytest.raises(InvalidValue, match="only the control"):
        plan().replace(source=plan().source.replace(control_only=SENTENCE))


@pytest.mark.parametrize(
    ("outcome", "status", "code"),
    [
        ("completed", "not_recovered", "source_failure_not_reproduced"),
        ("oom", "not_recovered", "no_supported_intervention"),
        ("timeout", "stopped", "control_inconclusive"),
        ("training_failed", "stopped", "control_failed_differently"),
    ],
)
def test_the_control_runs_once_and_is_the_verdict(outcome, status, code):
    assert decide(PLAN, (), frozenset(), ()) == Next("control", None)
    control = trial(PLAN, "control", 1, outcome=outcome)
    assert decide(PLAN, (), frozenset(), (control,)) == DECIDED
    verdict = verify(CAMPAIGN, PLAN, (), (control,), DECIDED)
    assert (verdict.status, verdict.reason_code) == (status, code), verdict.sentence
    assert outcome != "oom" or SENTENCE in verdict.sentence


def test_without_a_control_it_is_a_refusal_and_nothing_runs():
    made = planned(source(control_only=SENTENCE), control=False)
    assert decide(made, (), frozenset(), ()) == DECIDED
    assert verify(CAMPAIGN, made, (), (), DECIDED).reason_code == "no_supported_intervention"


def test_a_plan_that_was_sealed_before_reads_as_it_did():
    made = plan()
    assert "control_only" not in made.to_json()
    again = RecoveryPlan.from_json(made.to_json())
    assert again.digest == made.digest and again.source.control_only is None
    assert Source.from_json(PLAN.source.to_json()).control_only == SENTENCE
