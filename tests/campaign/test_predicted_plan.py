"""Preparing with predictions: a simulated source's plan starts at what fits; every other plan is as it was."""

import pytest

import watcherml
from watcherml import VerificationRequirements
from watcherml.api.data import capsule
from watcherml.cli.main import main

torch = pytest.importorskip("torch")

ENTRYPOINT = """
import torch
from torch import nn

def train(config, max_steps=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = config["training_steps"] if max_steps is None else max_steps
    for _ in range(steps):
        for _ in range(config["gradient_accumulation_steps"]):
            loss = model(torch.randn(config["batch_size"], 16)).square().mean()
            (loss / config["gradient_accumulation_steps"]).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"steps_completed": float(steps)}
"""
LAZY = """
def train(config, max_steps=None):
    import torch
    from ent import train as real
    return real(config, max_steps)
"""
PLAIN = "def train(config, max_steps=None):\n    return {'steps_completed': 4.0}\n"
CONFIG = {"batch_size": 960, "gradient_accumulation_steps": 1, "training_steps": 4}
WANTED = VerificationRequirements(4, confirmation_runs=1)


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    """A run that died on the simulated device where a third of its batch fits; the store, the run and the budget."""
    root = tmp_path_factory.mktemp("predicted")
    for name, text in (("ent", ENTRYPOINT), ("lazy", LAZY), ("bare", PLAIN)):
        (root / f"{name}.py").write_text(text)
    space = {}
    exec(compile(ENTRYPOINT, "ent.py", "exec"), space)
    with watcherml.simulated_device(None) as device:
        space["train"]({**CONFIG, "batch_size": 320, "gradient_accumulation_steps": 3}, max_steps=2)
    budget = device.peak_bytes + 4_096
    storage = watcherml.Storage(root / ".watcherml")
    run = watcherml.Run("demo", CONFIG, storage, quiet=True)
    with pytest.raises(torch.OutOfMemoryError):
        with watcherml.simulated_device(budget), run:
            space["train"](CONFIG)
    assert capsule(storage, run.run_id).device.kind == "simulated"
    return storage, run.run_id, root, budget, device.peak_bytes


def prepare(failed, target="ent:train", **options):
    storage, run_id, root, *_ = failed
    return watcherml.prepare_oom_recovery(
        run_id, target, WANTED, storage=storage, project_root=root, **options
    ).plan  # fmt: skip


def test_the_plan_starts_at_the_largest_exact_divisor_that_fits(failed):
    *_, budget, peak = failed
    plan = prepare(failed, "lazy:train")  # which imports torch in its function only
    first = plan.proposals[0]
    assert (first.proposal_id, first.predicted_peak_bytes) == ("batch-320x3", peak)
    reasons = {one.capability: one.reason for one in plan.skipped}
    assert "Its peak is predicted to be" in reasons["batch-480x2"]
    assert f"of {budget / 2**20:.1f} MiB" in reasons["batch-480x2"]
    assert "batch-240x4" in [one.proposal_id for one in plan.proposals]
    assert any("a trial decides" in note for note in plan.notes)


def test_prediction_can_be_turned_off(failed, capsys):
    plan = prepare(failed, predict=False)
    assert plan.proposals[0].proposal_id == "batch-480x2"
    assert all(one.predicted_peak_bytes is None for one in plan.proposals)
    assert not any("predicted" in text for text in (*plan.notes, *(one.reason for one in plan.skipped)))
    storage, run_id, root, *_ = failed
    flags = ["--data-dir", str(storage.path), "prepare-recovery", run_id, "--entrypoint", "ent:train"]
    flags += ["--project-root", str(root), "--confirmation-runs", "1"]
    assert main([*flags, "--no-predict"]) == 0
    assert "batch-480x2" in capsys.readouterr().out


def test_an_entrypoint_without_torch_is_planned_as_ever_and_says_why(failed):
    plan = prepare(failed, "bare:train")
    assert "No peak is predicted: the entrypoint does not use torch." in plan.notes
    assert plan.proposals[0].proposal_id == "batch-480x2" and plan.proposals[0].predicted_peak_bytes is None


def test_a_source_of_another_device_is_not_predicted(storage, failed_run, tmp_path):
    plan = watcherml.prepare_oom_recovery(failed_run(), "ent:train", VerificationRequirements(50), storage=storage).plan
    assert plan.contract.device.kind == "none" and not any("predicted" in note for note in plan.notes)
    assert all(one.predicted_peak_bytes is None for one in plan.proposals)
