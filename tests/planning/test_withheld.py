"""Changes that were found and only want permission: no surface says that nothing can help, and each says what to give.

A model with BatchNorm is the usual case: its smaller micro-batches need a person's approval.
"""

import pytest
from builders import MIB, planned, source

from watcherml.contract.permissions import InterventionPermissions
from watcherml.protocol.plan import RecoveryPlan, Refusing, Trait
from watcherml.protocol.verdict import Ending
from watcherml.report.after import next_step
from watcherml.report.terms import plan_headline
from watcherml.report.text import text_plan
from watcherml.sealed.device import Device
from watcherml.verdict.verify import verify

CUDA = Device("cuda", "H", 96 * MIB)
RESNET = {"model": "resnet50", "batch_size": 8, "gradient_accumulation_steps": 1}
NORM = (Trait("batch_norm", "seen", "model is 'resnet50'"),)
OFF = "No change is proposed: nothing in this configuration is known to help"


def make(config=RESNET, permissions=InterventionPermissions(), **options):  # noqa: B008 - it is immutable
    traits = NORM if config is RESNET else ()
    return planned(source(config, CUDA, traits=traits), CUDA, permissions=permissions, **options)


def judged(made):
    return verify("camp-1", made, (), (), Ending("decided"))


# configuration, what is given, what has to be given: the flags, the fields
WANTS = [
    (RESNET, {}, "with --allow-approval-required --allow-semantic-changes",
     "allow_approval_required=True, allow_semantic_changes=True"),
    (RESNET, {"permissions": InterventionPermissions(True)}, "with --allow-semantic-changes",
     "permissions=InterventionPermissions(allow_semantic_changes=True)"),
    (RESNET, {"permissions": InterventionPermissions(True, True), "include_approval_required": False},
     "without --automatic-only", "include_approval_required=True"),
    (RESNET, {"include_approval_required": False},
     "without --automatic-only and with --allow-approval-required --allow-semantic-changes",
     "allow_approval_required=True, allow_semantic_changes=True), include_approval_required=True"),
    ({"use_cache": True, "optim_bits": 32}, {}, "with --allow-approval-required (in", "allow_approval_required=True"),
    ({"offload_parameters": False}, {}, "with --allow-approval-required --allow-high-risk",
     "allow_approval_required=True, allow_high_risk=True"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "given", "flags", "fields"), WANTS)
def test_what_only_lacks_permission_is_told_with_the_flags_and_never_that_nothing_helps(config, given, flags, fields):
    made = make(config, **given)
    assert made.proposals == () and made.withheld and not made.runs_control_only
    verdict = judged(made)
    assert (verdict.status, verdict.reason_code) == ("not_recovered", "needs_approval")
    assert f"{len(made.withheld)} change" in verdict.sentence and "could help" not in verdict.sentence
    for words in (plan_headline(made, (), ()), next_step(verdict, made, "on_record")):
        assert flags in words and fields in words and "known to help" not in words


@pytest.mark.parametrize(("config", "given", "flags", "fields"), WANTS)
def test_what_is_told_to_be_given_is_enough(config, given, flags, fields):
    before = given.get("permissions", InterventionPermissions())
    allowed = {name: True for name in ("allow_approval_required", "allow_semantic_changes", "allow_high_risk")
               if f"{name}=True" in fields or f"--{name.replace('_', '-')}" in flags}  # fmt: skip
    assert make(config, permissions=before.replace(**allowed)).proposals


def test_a_plan_says_why_a_smaller_batch_needs_a_person():
    words = " ".join(text_plan(make()).split())
    assert "batch-4x2 needs a person's approval. Not the same update: BatchNorm" in words
    assert "allow_approval_required, allow_semantic_changes are off" in words
    assert not any("needs a person" in note for note in make({"batch_size": 8}).notes)


def test_where_nothing_was_found_or_a_cause_refuses_no_permission_is_asked_for():
    leak = Refusing("C10", "leak across steps", "Memory piles up.")
    for made in (make({"lr": 0.1}), planned(source(RESNET, CUDA, refused_by=(leak,), traits=NORM), CUDA)):
        assert made.withheld == () and judged(made).reason_code == "no_supported_intervention"
    assert plan_headline(make({"lr": 0.1}), (), ()).startswith(OFF)


def test_a_plan_that_was_sealed_without_permissions_keeps_its_bytes_and_its_verdict():
    made = make()
    older = made.replace(skipped=tuple(one.replace(permissions=None) for one in made.skipped))
    assert "permissions" not in older.to_json().split('"skipped"')[1].split('"source"')[0]
    assert RecoveryPlan.from_json(older.to_json()).digest == older.digest
    assert judged(older).reason_code == "no_supported_intervention"
