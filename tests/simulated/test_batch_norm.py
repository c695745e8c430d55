"""BatchNorm in a real failure and in real trials: a smaller micro-batch of it is not automatic."""

import pytest

import watcherml
from watcherml import InterventionPermissions, RecoveryBudget, VerificationRequirements
from watcherml.forensics.capsule import Capsule

torch = pytest.importorskip("torch")

MIB = 2**20
SOURCE = """
import torch
from torch import nn

def build(norm):
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU()]
    if norm:
        layers.insert(1, nn.BatchNorm2d(16))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))

def train(config, max_steps=None):
    torch.manual_seed(0)
    model = build(config.get("layers") != "plain")
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    steps = min(config["training_steps"], max_steps or 10**9)
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(config["gradient_accumulation_steps"]):
            images = torch.randn(config["batch_size"], 3, 32, 32)
            loss = nn.functional.cross_entropy(model(images), torch.zeros(len(images), dtype=torch.long))
            (loss / config["gradient_accumulation_steps"]).backward()
        optimizer.step()
    return {"steps_completed": steps, "loss": float(loss.detach())}
"""
CONFIG = {"batch_size": 64, "gradient_accumulation_steps": 1, "training_steps": 4}
WANTED = VerificationRequirements(minimum_progress_steps=4, confirmation_runs=1)
SMALL = RecoveryBudget(max_trials=4, max_probe_trials=2, max_full_trials=1)
BUDGET = 17 * MIB // 2  # batch 64 does not fit with or without BatchNorm, batch 32 does


def fail(storage, tmp_path, config):
    """Run the training function of a file on the device until it dies; returns the run and its EV-6."""
    (tmp_path / "conv.py").write_text(SOURCE)
    space = {}
    exec(compile(SOURCE, str(tmp_path / "conv.py"), "exec"), space)
    with pytest.raises(torch.OutOfMemoryError):
        with watcherml.simulated_device(BUDGET):
            with watcherml.Run("conv", config, storage, quiet=True) as run:
                space["train"](config)
    capsule = Capsule.from_json(storage.evidence.capsule(run.run_id)["document"])
    return run, next(piece.data for piece in capsule.evidence if piece.id == "EV-6")


def test_batch_norm_seen_in_the_failing_model_raises_the_authority_and_says_why(storage, tmp_path):
    run, framework = fail(storage, tmp_path, CONFIG)
    assert list(framework["batch_norm_modules"]) == ["BatchNorm2d"]
    made = watcherml.prepare_oom_recovery(run.run_id, "conv:train", WANTED, SMALL, storage=storage,
                                          permissions=InterventionPermissions(True, True, False))  # fmt: skip
    assert made.automatic_proposal_ids == () and "batch-32x2" in made.approval_required_proposal_ids
    caution = made.policy_plan.proposal("batch-32x2").cautions[0]
    assert "BatchNorm normalises each micro-batch of 32" in caution and "BatchNorm2d in the failed process" in caution
    plain, framework = fail(storage, tmp_path, {**CONFIG, "layers": "plain"})
    assert list(framework["batch_norm_modules"]) == []
    made = watcherml.prepare_oom_recovery(plain.run_id, "conv:train", WANTED, SMALL, storage=storage)
    assert "batch-32x2" in made.automatic_proposal_ids


def test_batch_norm_that_only_a_trial_meets_needs_approval_then(storage, tmp_path):
    """The failing model has none, the entrypoint builds one: the plan could not know, the trial does."""
    run, _ = fail(storage, tmp_path, {**CONFIG, "layers": "plain"})
    (tmp_path / "conv.py").write_text(SOURCE.replace('!= "plain"', '!= "never"'))
    made = watcherml.prepare_oom_recovery(run.run_id, "conv:train", WANTED, SMALL, storage=storage,
                                          permissions=InterventionPermissions(True, True, False))  # fmt: skip
    result = watcherml.run_prepared_recovery(made)
    assert (result.status, result.reason_code) == ("not_recovered", "needs_approval"), result.sentence
    assert "BatchNorm" in result.sentence and "batch-32x2" in result.sentence
    approved = made.authorize("batch-32x2", approved_by="a@example.org", reason="the statistics of 32 will do")
    again = watcherml.run_prepared_recovery(made, [approved])
    assert again.verified and again.verified_candidate_id == "batch-32x2", again.sentence
