"""Each bound of the contract: just inside accepted, just outside refused with the field's name."""

import pytest
from builders import contract, plan, source

from watcherml import (
    InterventionPermissions,
    MetricGuard,
    RecoveryBudget,
    TrainingEntrypoint,
    VerificationRequirements,
    WorkloadIdentity,
)
from watcherml.contract.guards import parse_guard
from watcherml.errors import InvalidEntrypoint, InvalidValue, UsageError

DAY = 24 * 3600.0


def resolve(confirmations=2, steps=50, control=True, **fields):
    return RecoveryBudget(**fields).resolve(
        confirmation_runs=confirmations, minimum_progress_steps=steps, control=control
    )


BUDGET = [
    ("max_trials", 10, 11),
    ("max_trials", 1, 0),
    ("max_probe_trials", 10, 11),
    ("max_probe_trials", 0, -1),
    ("max_full_trials", 1, 0),
    ("probe_steps", 1, 0),
    ("trial_timeout_seconds", 7 * DAY, 7 * DAY + 1),
    ("campaign_timeout_seconds", 7 * DAY, 7 * DAY + 1),
    ("max_gpu_seconds", 30 * DAY, 30 * DAY + 1),
    ("max_gpu_seconds", 0.1, 0),
    ("termination_grace_seconds", 0, -1),
    ("termination_grace_seconds", 600, 601),
]


@pytest.mark.parametrize(("field", "inside", "outside"), BUDGET)
def test_budget_bounds(field, inside, outside):
    assert getattr(RecoveryBudget(**{field: inside}), field) == inside
    with pytest.raises(InvalidValue, match=field):
        RecoveryBudget(**{field: outside})


REQUIREMENTS = [
    ("minimum_progress_steps", 1, 0),
    ("confirmation_runs", 3, 4),
    ("confirmation_runs", 1, 0),
    ("max_peak_vram_bytes", 0, -1),
    ("metric_guards", tuple(MetricGuard(f"m{i}", "minimize", 1, 0) for i in range(32)),
     tuple(MetricGuard(f"m{i}", "minimize", 1, 0) for i in range(33))),
    ("metric_guards", (MetricGuard("m", "minimize", 1, 0),), (MetricGuard("m", "minimize", 1, 0),) * 2),
]  # fmt: skip


@pytest.mark.parametrize(("field", "inside", "outside"), REQUIREMENTS)
def test_requirement_bounds(field, inside, outside):
    values = {"minimum_progress_steps": 5}
    assert getattr(VerificationRequirements(**{**values, field: inside}), field) == inside
    with pytest.raises(InvalidValue, match=field):
        VerificationRequirements(**{**values, field: outside})


@pytest.mark.parametrize("field", ["dataset_fingerprint", "environment_fingerprint", "git_commit", "model_identifier"])
def test_identities_have_1_to_1024_characters(field):
    assert WorkloadIdentity(**{field: "x" * 1024}).declared() == {field: "x" * 1024}
    for outside in ("", "x" * 1025):
        with pytest.raises(InvalidValue, match=field):
            WorkloadIdentity(**{field: outside})


@pytest.mark.parametrize(
    ("guard", "boundary", "inside", "outside"),
    [
        (MetricGuard("v", "minimize", 0.42, 0.03), 0.45, 0.45, 0.4500001),
        (MetricGuard("v", "minimize", 0.42, 0.03, 0.43), 0.43, 0.43, 0.44),
        (MetricGuard("v", "minimize", 0.42, 0.03, 0.9), 0.45, 0.45, 0.46),
        (MetricGuard("v", "maximize", 0.9, 0.1), 0.8, 0.8, 0.79),
        (MetricGuard("v", "maximize", 0.9, 0.1, 0.85), 0.85, 0.85, 0.84),
        (MetricGuard("v", "maximize", 0.9, 0.1, 0.1), 0.8, 0.8, 0.79),
    ],
)
def test_guards_accept_their_boundary_and_targets_only_tighten(guard, boundary, inside, outside):
    assert guard.boundary == pytest.approx(boundary)
    assert guard.accepts(inside) and not guard.accepts(outside)


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_regression", -0.1), ("direction", "lower"), ("baseline_value", float("nan")), ("name", ""), ("name", "a\n")],
)
def test_bad_guards_are_refused_by_field(field, value):
    values = {"name": "v", "direction": "minimize", "baseline_value": 1.0, "max_regression": 0.0, field: value}
    with pytest.raises(InvalidValue, match=field):
        MetricGuard(**values)


def test_metric_flags_parse():
    assert parse_guard("validation_loss:minimize:0.42:0.03") == MetricGuard("validation_loss", "minimize", 0.42, 0.03)
    assert parse_guard("val:loss:maximize:1:0.5:2") == MetricGuard("val:loss", "maximize", 1.0, 0.5, 2.0)
    for wrong in (
        "loss",
        "loss:minimize:1",
        "loss:min:1:2",
        "loss:minimize:a:b",
        ":minimize:1:2",
        "l:minimize:1:2:3:4",
    ):
        with pytest.raises((UsageError, InvalidValue)):
            parse_guard(wrong)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (10, 5, 2)),
        ({"max_trials": 4}, (4, 1, 1)),
        ({"max_trials": 5}, (5, 2, 1)),
        ({"max_trials": 6}, (6, 3, 1)),
        ({"max_trials": 7}, (7, 3, 2)),
        ({"max_trials": 6, "max_probe_trials": 3, "max_full_trials": 1}, (6, 3, 1)),
        ({"max_full_trials": 1}, (10, 5, 1)),
        ({"max_probe_trials": 1}, (10, 1, 2)),
    ],
)
def test_unset_fields_are_resolved(given, expected):
    found = resolve(**given)
    assert (found.max_trials, found.max_probe_trials, found.max_full_trials) == expected
    assert found.resolve(confirmation_runs=2, minimum_progress_steps=50, control=True) == found


def test_a_short_workload_gets_short_probes():
    assert resolve(steps=12).probe_steps == 12 and resolve(steps=500).probe_steps == 30


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"max_trials": 3}, r"max_trials: .* = 1 \+ 1 \+ 2; got 3\. Raise max_trials"),
        ({"max_full_trials": 9}, r"max_trials: .* = 1 \+ 9 \+ 2; got 10\. Lower one of the three"),
        ({"max_trials": 6, "max_probe_trials": 4, "max_full_trials": 1}, "max_trials"),
        ({"max_probe_trials": 0}, "max_probe_trials"),
        ({"probe_steps": 51}, "probe_steps"),
        ({"trial_timeout_seconds": 20.0, "campaign_timeout_seconds": 10.0}, "trial_timeout_seconds"),
    ],
)
def test_numbers_that_do_not_hold_together_are_refused_by_field(given, field):
    with pytest.raises(InvalidValue, match=field):
        resolve(**given)


def test_without_a_control_no_probe_is_needed():
    found = resolve(max_trials=3, control=False)
    assert (found.max_probe_trials, found.max_full_trials) == (0, 1)


def test_a_contract_with_an_unresolved_or_other_budget_is_refused():
    sealed = contract(source())
    with pytest.raises(InvalidValue, match="budget"):
        sealed.replace(budget=RecoveryBudget())
    with pytest.raises(InvalidValue, match="max_trials"):
        sealed.replace(budget=sealed.budget.replace(max_trials=8))


def test_the_descriptions_example_is_control_two_probes_one_full_two_confirmations():
    verification = VerificationRequirements(
        minimum_progress_steps=1_000,
        metric_guards=(
            MetricGuard(name="validation_loss", direction="minimize", baseline_value=0.42, max_regression=0.03),
        ),
        confirmation_runs=2,
        max_peak_vram_bytes=14 * 1024**3,
        workload_identity=WorkloadIdentity(
            dataset_fingerprint="CAPTURED_FINGERPRINT", model_identifier="example-transformer"
        ),
    )
    budget = RecoveryBudget(
        max_trials=6, max_probe_trials=3, max_full_trials=1, probe_steps=30, trial_timeout_seconds=3_600,
        campaign_timeout_seconds=14_400, max_gpu_seconds=7_200,
    )  # fmt: skip
    made = plan(budget=budget, verification=verification).contract
    assert made.verification.metric_guards[0].boundary == pytest.approx(0.45)
    assert made.probe_candidates == 2 and made.budget.max_full_trials == 1


@pytest.mark.parametrize(
    ("target", "remedy"),
    [
        ("train.py:train", "Write train:train"),
        ("./pkg/train.py:train", "Write pkg.train:train"),
        ("pkg.train.main", "Write pkg.train:main"),
        ("train", "train:train"),
        ("train:main()", "Write train:main"),
        ("", "Name an importable module"),
        ("a b:c", "Name an importable module"),
        ("class:x", "Name an importable module"),
    ],
)
def test_a_misspelled_entrypoint_is_answered_with_the_spelling(target, remedy):
    with pytest.raises((InvalidEntrypoint, InvalidValue)) as refused:
        TrainingEntrypoint(target)
    assert remedy in str(refused.value) or target == ""


def test_permissions_are_off_unless_given():
    assert InterventionPermissions().missing_for(approval=True, semantic=False, high_risk=False)
    assert not InterventionPermissions(True, True).missing_for(approval=True, semantic=True, high_risk=False)
    assert InterventionPermissions(True, True).missing_for(approval=True, semantic=True, high_risk=True)
