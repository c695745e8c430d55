"""The demo's training code: it dies where it should, and the recoveries keep its loss."""

import importlib.util
import inspect
import shutil
from pathlib import Path

import pytest
import torch

from watcherml.cli import demo_char_gpt
from watcherml.simulated.device import simulated_device
from watcherml.simulated.prediction import predicted_device

# torch 2.4's own checkpointing uses what torch 2.4 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.cpu.amp.autocast:FutureWarning")

BUDGET = "96 MiB"
RECOVERIES = {
    "16x4": {"batch_size": 16, "gradient_accumulation_steps": 4},
    "8x8": {"batch_size": 8, "gradient_accumulation_steps": 8},
    "checkpointed": {"gradient_checkpointing": True},
}


@pytest.fixture
def module(tmp_path: Path):
    """The source as a user has it: one file in a folder, imported by its own name."""
    file = tmp_path / "char_gpt.py"
    shutil.copy(demo_char_gpt.__file__, file)
    assert "watcherml" not in file.read_text()
    spec = importlib.util.spec_from_file_location("char_gpt", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("change", [{}, {"batch_size": 32, "gradient_accumulation_steps": 2}], ids=["64x1", "32x2"])
def test_the_full_batch_and_its_half_run_out_in_the_first_two_steps(module, change) -> None:
    with simulated_device(BUDGET):
        with pytest.raises(torch.OutOfMemoryError):
            module.train(change, max_steps=2)


@pytest.mark.parametrize("change", RECOVERIES.values(), ids=RECOVERIES.keys())
def test_recoveries_fit_with_room_and_make_the_same_updates(module, change) -> None:
    unlimited = module.train({}, max_steps=3)
    with simulated_device(BUDGET) as device:
        recovered = module.train(change, max_steps=3)
    assert recovered == pytest.approx(unlimited, abs=1e-5)
    assert device.peak_bytes < 0.95 * device.budget_bytes


def test_prediction_finds_the_largest_micro_batch_without_running(module) -> None:
    fits = []
    for batch in (64, 32, 16):
        with predicted_device() as device:
            module.train({"batch_size": batch, "gradient_accumulation_steps": 64 // batch}, max_steps=2)
        fits.append(device.peak_bytes <= 96 * 2**20)
    assert fits == [False, False, True]


def test_training_learns_and_reports_each_step(module) -> None:
    logged = []
    config = {"training_steps": 8, "batch_size": 16, "gradient_checkpointing": False}
    reached = module.train(config, log=lambda *point: logged.append(point))
    assert [step for _, _, step in logged] == list(range(1, 9))
    assert {name for name, _, _ in logged} == {"train_loss"}
    assert reached["steps_completed"] == 8.0
    assert reached["train_loss"] == logged[-1][1]
    assert 4.0 < logged[0][1] < 6.0
    assert reached["val_loss"] < 3.1 < logged[0][1]  # 3.28 if gradients are not cleared between steps
    assert module.train({**config, "training_steps": 2})["steps_completed"] == 2.0
    assert module.train(config, max_steps=1)["steps_completed"] == 1.0
    assert config == {"training_steps": 8, "batch_size": 16, "gradient_checkpointing": False}


def test_its_signature_is_that_of_an_entrypoint() -> None:
    parameters = inspect.signature(demo_char_gpt.train).parameters
    assert list(parameters) == ["config", "max_steps", "log"]
    assert parameters["max_steps"].default is None
    assert parameters["log"].default is None


def test_the_model_has_about_a_million_parameters(module) -> None:
    model = module.CharGPT(103, module.DEFAULTS)
    assert 0.9e6 < sum(parameter.numel() for parameter in model.parameters()) < 1.2e6
