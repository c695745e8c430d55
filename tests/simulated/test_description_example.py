"""The guide's own numbers, as a user would type them: budget 6 / 3 / 1 / 2, two identities, one guard, a ceiling."""

import json

import pytest

import watcherml as watcher
from watcherml.recorder.dataset import fingerprint

torch = pytest.importorskip("torch")

SOURCE = """
import json
from pathlib import Path

import torch
from torch import nn


def train(config: dict, max_steps: int | None = None) -> dict[str, float]:
    configured_steps = int(config["training_steps"])
    steps_to_run = min(configured_steps, max_steps) if max_steps is not None else configured_steps
    torch.manual_seed(0)
    points = torch.tensor(json.loads(Path(__file__).with_name("data").joinpath("points.json").read_text()))
    model = nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    completed = 0
    for _ in range(steps_to_run):
        optimizer.zero_grad()
        for _ in range(config["gradient_accumulation_steps"]):
            x = points[torch.randint(len(points), (config["batch_size"],))].unsqueeze(1)
            (nn.functional.mse_loss(model(x), x.square()) / config["gradient_accumulation_steps"]).backward()
        optimizer.step()
        completed += 1
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(points[:64].unsqueeze(1)), points[:64].unsqueeze(1).square())
    return {"steps_completed": float(completed), "validation_loss": float(loss)}
"""
CONFIG = {
    "model": "example-transformer",
    "batch_size": 2048,
    "gradient_accumulation_steps": 1,
    "block_size": 128,
    "training_steps": 1_000,
}
LIMIT = "2 MiB"


@pytest.fixture
def project(storage, tmp_path):
    """A training file, its data, and a failed run that recorded both."""
    (tmp_path / "train_entrypoint.py").write_text(SOURCE)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "points.json").write_text(json.dumps([number / 64 - 1 for number in range(129)]))
    space = {"__file__": str(tmp_path / "train_entrypoint.py")}
    exec(compile(SOURCE, str(tmp_path / "train_entrypoint.py"), "exec"), space)
    run = watcher.init(project="oom-demo", config=CONFIG, storage=storage)
    run.set_dataset("./data")
    with pytest.raises(torch.OutOfMemoryError), watcher.simulated_device(LIMIT), run:
        space["train"](CONFIG)
    return run.run_id


def requirements(captured):
    return watcher.VerificationRequirements(
        minimum_progress_steps=1_000,
        metric_guards=(
            watcher.MetricGuard(
                name="validation_loss", direction="minimize", baseline_value=0.42, max_regression=0.03,
            ),
        ),
        confirmation_runs=2,
        max_peak_vram_bytes=14 * 1024**3,
        workload_identity=watcher.WorkloadIdentity(
            dataset_fingerprint=captured, model_identifier="example-transformer",
        ),
    )  # fmt: skip


def budget():
    return watcher.RecoveryBudget(
        max_trials=6,
        max_probe_trials=3,
        max_full_trials=1,
        probe_steps=30,
        trial_timeout_seconds=3_600,
        campaign_timeout_seconds=14_400,
        max_gpu_seconds=7_200,
    )


def test_the_guides_contract_is_verified_as_written(project, tmp_path, storage):
    captured = fingerprint("./data")["fingerprint"]
    result = watcher.recover_from_oom(
        failed_run_id=project,
        entrypoint="train_entrypoint:train",
        verification=requirements(captured),
        budget=budget(),
        project_root=".",
        include_approval_required=False,
        storage=storage,
    )
    assert result.verified and result.reason_code == "verified_recovery", result.sentence
    assert result.verified_candidate_id == "batch-1024x2" and len(result.verified_run_ids) == 2
    roles = [one.request.role for one in result.trials]
    assert roles[0] == "control" and roles.count("full") == 1 and roles.count("confirmation") == 2
    assert roles.count("probe") + roles.count("control") <= 3 and len(roles) <= 6
    checks = {check.name: check.outcome for check in result.verdict.checks}
    for name in ("identity.dataset_fingerprint", "identity.model_identifier", "metric.validation_loss", "peak_bytes"):
        assert checks[f"confirmation 2: {name}"] == "pass"
    assert watcher.RecoveryResult.from_json(result.to_json(), storage=storage).verified


def test_the_guides_two_stage_review_runs_what_a_person_approved(project, storage):
    permissions = watcher.InterventionPermissions(
        allow_approval_required=True, allow_semantic_changes=True, allow_high_risk=False
    )
    preparation = watcher.prepare_oom_recovery(
        failed_run_id=project,
        entrypoint="train_entrypoint:train",
        verification=requirements(fingerprint("./data")["fingerprint"]),
        budget=budget(),
        permissions=permissions,
        project_root=".",
        include_approval_required=True,
        storage=storage,
    )
    authority = {
        proposal.proposal_id: (proposal.proposal_id in preparation.automatic_proposal_ids, proposal.policy_rule)
        for proposal in preparation.policy_plan.proposals
    }
    assert authority["batch-1024x2"] == (True, "micro_batch_ladder")
    assert authority["sequence-64"] == (False, "sequence_halving")
    assert storage.audit.campaigns() == [] and storage.audit.trials() == []  # preparing computed nothing
    proposal_id = preparation.approval_required_proposal_ids[0]
    authorization = preparation.authorize(
        proposal_id, approved_by="engineer@example.com", reason="Reviewed quality and runtime trade-offs."
    )
    again = watcher.RecoveryPreparation.from_json(preparation.to_json(), storage=storage)
    assert again.policy_plan == preparation.policy_plan
    result = watcher.run_prepared_recovery(again, authorizations={proposal_id: authorization}, project_root=".")
    assert result.verified and result.chain.authorizations == (authorization,)
    tried = {one.request.proposal_id for one in result.trials} - {None}
    assert tried <= {*preparation.automatic_proposal_ids, proposal_id}
