"""A campaign that verified nothing says what to do next, on every face; one that verified something does not."""

import html

import pytest

from watcherml.cli.contracts import plan_in_short
from watcherml.protocol.plan import Skipped
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


def test_a_batch_size_that_a_cause_rules_out_is_not_told_to_add_one(make):
    why = "C15 (optimizer state, first step) rules it out: activations are gone when the optimizer makes its state."
    plan = make.plan(offered=()).replace(skipped=(Skipped("micro_batch_size", why),))
    step = next_step(unverified(make, "no_supported_intervention"), plan, "on_record")
    assert why in step and f"watcher inspect {plan.source.run_id}" in step
    assert "gradient_accumulation_steps" not in step
    shown = " ".join(plan_in_short(plan, ()).split())
    assert "The reasons are listed below." in shown and f"micro batch size: {why}" in shown


def test_who_permitted_what_needs_approval_is_told_how_to_approve_it_with_the_permissions_that_the_plan_had(make):
    waiting = make.plan(offered=tuple(one for one in make.proposals() if one.authority == "approval_required"))
    step = next_step(unverified(make, "needs_approval"), waiting, "on_record")
    assert f"--authorize {waiting.proposals[0].proposal_id} --approved-by NAME" in step
    assert "with the same permissions" in step
    assert "(--allow-approval-required --allow-semantic-changes --allow-high-risk --authorize" in step
    mixed = make.plan()
    assert "--allow-approval-required" in next_step(unverified(make, "needs_approval"), mixed, "on_record")


def test_where_every_smaller_batch_ran_out_too_the_function_is_told_to_read_it_from_its_config(make):
    failed = Check("probe batch-8: outcome", "completed", "oom", "fail")
    verdict = make.verdict(status="not_recovered", reason_code="no_candidate_passed_probe", checks=(failed,))
    step = next_step(verdict, make.plan(), "on_record")
    assert "see that the function reads batch_size from its config" in step and "is made when a module" in step
    killed = verdict.replace(checks=(failed.replace(observed="killed"),))
    assert "reads batch_size" not in next_step(killed, make.plan(), "on_record")


@pytest.mark.parametrize(
    ("code", "probes", "full", "limits"),
    [
        ("no_candidate_passed_probe", "3", "0", ["max_probe_trials (--max-probe-trials)"]),
        ("no_eligible_candidate", "2", "1", ["max_full_trials (--max-full-trials)"]),
        ("no_eligible_candidate", "3", "1", ["max_probe_trials", "max_full_trials"]),
        ("confirmation_failed", "3", "1", ["max_probe_trials", "max_full_trials"]),
        ("no_candidate_passed_probe", "2", "0", []),  # nothing was spent: something else ended it
        ("no_candidate_passed_probe", "9", "0", []),  # every change was tried
    ],
)
def test_changes_that_only_the_limits_kept_from_being_tried_name_the_limits(make, code, probes, full, limits):
    plan = make.plan()
    budget = plan.contract.budget.replace(max_trials=6, max_probe_trials=3, max_full_trials=1)
    plan = plan.replace(contract=plan.contract.replace(budget=budget))
    spent = (Check("budget.probes", "at most 3", probes, "pass"), Check("budget.full", "at most 1", full, "pass"))
    verdict = make.verdict(status="not_recovered", reason_code=code, checks=spent)
    step = next_step(verdict, plan, "on_record")
    assert ("for want of room" in step) is bool(limits)
    assert all(one in step for one in limits)
    assert [one in step for one in ("max_probe_trials", "max_full_trials")].count(True) == len(limits)


def test_changes_that_could_be_allowed_are_spoken_of_only_where_there_are_some(make):
    verdict = unverified(make, "no_candidate_passed_probe")
    assert "allow" not in next_step(verdict, make.plan().replace(skipped=()), "on_record")
    withheld = Skipped("sequence-32", "The contract does not permit it.", ("allow_approval_required",))
    step = next_step(verdict, make.plan().replace(skipped=(withheld,)), "on_record")
    assert "more changes can be planned with --allow-approval-required" in step


def test_a_control_that_the_functions_own_error_ended_is_told_to_mend_that_error(make):
    checks = [
        Check("control.outcome", "oom", "training_failed", "fail"),
        Check("control.failure_class", "cuda_out_of_memory", "unclassified", "fail"),
    ]
    verdict = make.verdict(status="stopped", reason_code="control_failed_differently", checks=tuple(checks))
    step = next_step(verdict, make.plan(), "on_record")
    assert "mend the error that ended the training function" in step and "order of batches" not in step
    other = verdict.replace(checks=(checks[0], checks[1].replace(observed="nan_loss")))
    assert "order of batches" in next_step(other, make.plan(), "on_record")
