"""Discovery, ladders, order, permissions, approvals."""

import itertools

import pytest
from builders import CONFIG, approve, plan, source
from hypothesis import given
from hypothesis import strategies as st

from watcherml.contract.permissions import InterventionPermissions
from watcherml.errors import InvalidValue, NotAuthorized, NotFound
from watcherml.planning.authorize import check_authorization
from watcherml.planning.discover import discover
from watcherml.planning.equivalence import accumulation_for, divisors_down
from watcherml.planning.plan import approval_ids, automatic_ids, control_steps
from watcherml.protocol.plan import RecoveryPlan


@given(st.integers(1, 5000), st.integers(1, 64))
def test_ladders_are_exact_divisors_that_keep_the_effective_batch(batch, accumulation):
    rungs = divisors_down(batch)
    assert all(batch % rung == 0 for rung in rungs)
    assert all(later <= earlier // 2 for earlier, later in itertools.pairwise([batch, *rungs]))
    assert not rungs or rungs[-1] == 1
    for rung in rungs:
        assert rung * accumulation_for(batch, accumulation, rung) == batch * accumulation
    with pytest.raises(ValueError):
        accumulation_for(batch, accumulation, batch + 1)


FOUND = [
    ({"batch_size": 8}, {"micro_batch_size": ("batch_size",)}),
    ({"per_device_train_batch_size": 8, "per_device_eval_batch_size": 8},
     {"micro_batch_size": ("per_device_train_batch_size",)}),
    ({"train": {"batch_size": 8}, "eval": {"batch_size": 64}}, {"micro_batch_size": ("train", "batch_size")}),
    ({"batch_size": 8, "eval": {"batch_size": 64}}, {"micro_batch_size": ("batch_size",)}),
    ({"trainer": {"accumulate_grad_batches": 2}},
     {"gradient_accumulation_steps": ("trainer", "accumulate_grad_batches")}),
    ({"model": {"activation_checkpointing": False}}, {"gradient_checkpointing": ("model", "activation_checkpointing")}),
    ({"block_size": 128}, {"sequence_length": ("block_size",)}),
    ({"lr": 0.1, "batch": 4}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("config", "expected"), FOUND)
def test_discovery(config, expected):
    found, _ = discover(config)
    assert {one.name: one.path for one in found} == expected


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"a": {"batch_size": 8}, "b": {"batch_size": 8}}, '"path": ["a", "batch_size"]'),
        ({"batch_size": "8"}, "whole number"),
        ({"batch_size": True}, "whole number"),
        ({"batch_size": 0}, "whole number"),
        ({"batch_size": 8.0}, "whole number"),
    ],
)
def test_what_cannot_be_used_is_skipped_with_the_reason(config, word):
    found, skipped = discover(config)
    assert not found and word in skipped[0].reason


def test_a_declaration_names_the_path_and_can_only_tighten():
    config = {"a": {"batch_size": 8}, "b": {"batch_size": 16}}
    found, skipped = discover(config, {"micro_batch_size": {"path": ["b", "batch_size"]}})
    assert found[0].value == 16 and found[0].source == "declared" and not skipped
    found, _ = discover({"batch_size": 8}, {"micro_batch_size": {"authority": "approval_required"}})
    assert found[0].authority == "approval_required"
    with pytest.raises(InvalidValue, match="tighten"):
        discover({"block_size": 8}, {"sequence_length": {"authority": "automatic"}})


@pytest.mark.parametrize(
    "declaration",
    [
        {"micro_batch": {"path": ["a"]}},
        {"micro_batch_size": {"path": "batch_size"}},
        {"micro_batch_size": {"path": []}},
        {"micro_batch_size": {"path": ["nothing"]}},
        {"micro_batch_size": {"authority": "free"}},
        {"micro_batch_size": {"other": 1}},
        {"micro_batch_size": 7},
    ],
)
def test_a_wrong_declaration_is_refused_by_name(declaration):
    with pytest.raises(InvalidValue, match="capabilities"):
        discover({"batch_size": 8}, declaration)


def test_the_plan_is_a_ladder_with_checkpointing_and_combinations():
    made = plan()
    ids = [one.proposal_id for one in made.proposals]
    assert ids[:4] == ["batch-32x2", "checkpointing", "batch-16x4", "batch-32x2+checkpointing"]
    assert {"batch-1x64", "batch-8x8+checkpointing", "sequence-64"} <= set(ids)
    batch = made.proposal("batch-32x2")
    assert batch.effective_batch == "preserved" and batch.authority == "automatic" and batch.risk == "low"
    assert made.candidate_config("batch-32x2") == {**CONFIG, "batch_size": 32, "gradient_accumulation_steps": 2}
    assert automatic_ids(made) + approval_ids(made) == tuple(ids)
    assert all(one.semantic for one in made.proposals if one.proposal_id in approval_ids(made))


def test_without_accumulation_the_batch_change_is_labelled():
    made = plan({"batch_size": 8})
    assert {one.effective_batch for one in made.proposals} == {"changed"}
    assert all("effective batch" in one.cautions[0] for one in made.proposals)


def test_permissions_and_limits_leave_out_with_the_reason():
    closed = plan(permissions=InterventionPermissions())
    assert not approval_ids(closed)
    assert "allow_approval_required" in next(s.reason for s in closed.skipped if s.capability == "sequence-64")
    automatic = plan(include_approval_required=False)
    assert not approval_ids(automatic)
    short = plan(max_proposals=2)
    assert len(short.proposals) == 2 and any("at most 2" in one.reason for one in short.skipped)


def test_a_plan_is_deterministic_to_the_byte():
    assert plan().to_json() == plan().to_json()
    assert RecoveryPlan.from_json(plan().to_json()) == plan()


def test_the_control_runs_past_the_last_step_and_the_largest_gap():
    assert control_steps(source(last_step=40, logging_gap=10), 20) == 52
    # A run that logged nothing, or epochs: a control that stops early would pass for the wrong reason.
    assert control_steps(source(last_step=None, logging_gap=0), 20) == 20
    assert control_steps(source(last_step=3, logging_gap=1), 500) == 500


def test_an_approval_is_bound_to_one_proposal_of_one_plan():
    made, other = plan(), plan({**CONFIG, "batch_size": 128})
    given = approve(made, "sequence-64")
    check_authorization(made, given)
    with pytest.raises(NotAuthorized, match="plan_digest"):
        check_authorization(other, given)
    with pytest.raises(NotAuthorized, match="proposal_digest"):
        check_authorization(made, given.replace(proposal_id="batch-32x2"))
    with pytest.raises(NotFound):
        approve(made, "nothing")
    for field in ("approved_by", "reason"):
        with pytest.raises(InvalidValue, match=field):
            given.replace(**{field: "  "})
