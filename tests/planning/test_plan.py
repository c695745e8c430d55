"""Discovery, ladders, order, permissions, approvals."""

from builders import CONFIG, plan, source

from watcherml.contract.permissions import InterventionPermissions
from watcherml.planning.plan import approval_ids, automatic_ids
from watcherml.protocol.plan import RecoveryPlan, control_steps


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
