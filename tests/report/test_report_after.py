"""A campaign that verified nothing says what to do next, on every face; one that verified something does not."""

import html

import pytest

from watcherml.protocol.verdict import Check
from watcherml.report import glossary
from watcherml.report.after import next_step
from watcherml.report.html import html_verdict
from watcherml.report.text import text_verdict

# Where the verdict's own sentence says what to do.
SAID = {"verified_recovery", "horizon_not_reached", "no_supported_intervention"}


def unverified(make, code):
    status = "stopped" if code.startswith(("stopped", "control", "campaign")) else "not_recovered"
    return make.verdict(status=status, reason_code=code)


@pytest.mark.parametrize("code", sorted(set(glossary.GLOSSARY["reason"]) - SAID))
def test_every_reason_comes_with_the_next_step_on_every_face(make, code):
    verdict, plan = unverified(make, code), make.plan()
    step = next_step(verdict, plan, "on_record")
    assert step.startswith("Next: ") and step.endswith(".")
    text = " ".join(text_verdict(verdict, plan, []).split())
    assert step in text and text.index(step) < text.index("Checks:")
    assert step in html.unescape(html_verdict(verdict, plan, []))


def test_nothing_to_do_is_said_of_what_is_verified_said_already_or_not_of_this_store(make):
    for code in SAID - {"verified_recovery"}:
        assert not next_step(unverified(make, code), make.plan(), "on_record")
    assert not next_step(make.verdict(), make.plan(), "on_record")
    assert "Next:" not in text_verdict(make.verdict(), make.plan(), make.finished())
    assert not next_step(unverified(make, "control_missing"), make.plan(), "imported")


def test_a_configuration_without_a_known_setting_is_told_which_to_add(make):
    step = next_step(unverified(make, "no_supported_intervention"), make.plan(offered=()), "on_record")
    assert "batch_size with gradient_accumulation_steps" in step


@pytest.mark.parametrize(
    ("code", "name", "observed", "outcome"),
    [
        ("no_eligible_candidate", "full batch-8: progress.metric", "not measured", "missing"),
        ("no_candidate_passed_probe", "probe batch-8: outcome", "contract_error", "fail"),
    ],
)
def test_a_function_that_returns_no_metrics_is_told_which_to_return(make, code, name, observed, outcome):
    plan = make.plan()
    verdict = make.verdict(
        status="not_recovered", reason_code=code, checks=(Check(name, "completed", observed, outcome),)
    )
    step = next_step(verdict, plan, "on_record")
    assert "have the function return" in step and f'"{plan.contract.progress_metric}": ...' in step
    passed = make.verdict(
        status="not_recovered", reason_code=code, checks=(Check("full batch-8: peak", "less", "more", "fail"),)
    )
    assert "have the function return" not in next_step(passed, plan, "on_record")
