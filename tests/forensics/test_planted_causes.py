"""Real training on the simulated device, from the run to the capsule: the planted cause is the one that is named."""

import gc
import itertools

import planted
import planted_more
import pytest

import watcherml
from watcherml.forensics.capsule import Capsule
from watcherml.simulated.device import simulated_device

MIB = 2**20


def fail(storage, program, budget, config=None):
    """Run a program until it runs out of memory; returns the capsule."""
    run = watcherml.Run("demo", config or {}, storage, quiet=True)
    with pytest.raises(RuntimeError, match="SIMULATED"), run, simulated_device(budget * MIB) as device:
        program(device)
    assert not run.problems, run.problems
    return Capsule.from_json(storage.evidence.capsule(run.run_id)["document"])


@pytest.fixture(autouse=True)
def clean():
    """Nothing of one case is there in the next."""
    yield
    gc.enable()
    planted.EARLIER.clear()
    gc.collect()


# Program, budget in MiB, configuration, and the causes that explain it, the planted one first. Keeping the outputs of
# an evaluation with gradients keeps their graphs: not keeping them would have been enough as well.
CASES = [
    ("leak", 24, {"batch_size": 64}, ["C10"]),
    ("cycles", 8, {"batch_size": 64}, ["C11"]),
    ("evaluation_with_gradients", 20, {"batch_size": 64}, ["C16a", "C16b"]),
    ("evaluation_outputs", 12, {"batch_size": 64}, ["C16b"]),
    ("first_optimizer_step", 32, {"batch_size": 2}, ["C15"]),
    ("longest_batch", 8, {"batch_size": 16}, ["C17"]),
    ("logits", 48, {"batch_size": 8}, ["C14"]),
    ("attention_scores", 34, {"batch_size": 4, "sequence_length": 512}, ["C13"]),
    ("static_model", 24, {"batch_size": 64}, ["C12"]),
    ("activations", 24, {"batch_size": 4096}, ["C21"]),
]


@pytest.mark.parametrize(("name", "budget", "config", "causes"), CASES, ids=[row[0] for row in CASES])
def test_the_planted_cause_is_sufficient(storage, name, budget, config, causes):
    capsule = fail(storage, getattr(planted, name), budget, config)
    found = capsule.diagnosis
    assert [one.id for one in found.sufficient] == causes, (found.to_data(), capsule.headline)
    assert capsule.diagnosis.sentence in capsule.headline


# Program, budget in MiB, what explains it, and what else was planted or is there; nothing of it is called excluded.
MORE = [
    ("hook_keeps_activations", 16, ["C10"], []),
    ("running_loss", 12, ["C10"], []),
    ("kept_predictions", 12, ["C16b"], []),
    ("large_evaluation_batch", 16, ["C16c"], []),
    ("second_step", 22, ["C15b"], []),
    ("unfrozen_late", 24, ["C15"], []),
    ("averaged_copy", 16, [], ["C12"]),
    ("merged_last_batch", 9, ["C17"], []),
    ("summed_losses", 10, ["C10b"], []),
    ("evaluation_that_nothing_names", 10, ["C10b"], []),
    ("growing_lengths", 5, ["C14", "C17"], []),  # the logits of a long batch are a part of it
    ("leak_and_long_batch", 24, ["C10"], ["C17"]),
]


@pytest.mark.parametrize(("name", "budget", "causes", "beside"), MORE, ids=[row[0] for row in MORE])
def test_nothing_else_is_called_the_cause_and_nothing_planted_excluded(storage, name, budget, causes, beside):
    capsule = fail(storage, getattr(planted_more, name), budget)
    found = capsule.diagnosis
    assert [one.id for one in found.sufficient] == causes, (found.to_data(), capsule.headline)
    assert set(beside) <= {one.id for one in found.contributing}
    captured = {piece.id for piece in capsule.evidence if piece.status == "present"}
    for one in (*found.sufficient, *found.contributing, *found.excluded):
        assert set(one.evidence_ids) <= captured, one.id


def test_weights_and_their_copy_that_fill_the_device_are_not_blamed_on_the_step(storage):
    headline = fail(storage, planted_more.averaged_copy, 16).headline
    assert "a smaller step alone frees too little" in headline and "make the step smaller" not in headline


def test_what_an_earlier_training_left_is_found(storage):
    """Two runs on one device: the first goes well and leaves its model and Adam's state in a global."""
    with simulated_device(32 * MIB) as device:
        with watcherml.Run("demo", {}, storage, quiet=True):
            planted.earlier_cell(device)
        left = device.current_bytes
        run = watcherml.Run("demo", {}, storage, quiet=True)
        with pytest.raises(RuntimeError, match="SIMULATED"), run:
            planted.earlier_cell(device)
    capsule = Capsule.from_json(storage.evidence.capsule(run.run_id)["document"])
    assert [one.id for one in capsule.diagnosis.sufficient] == ["C5"], capsule.diagnosis.to_data()
    memory = {piece.id: piece.data for piece in capsule.evidence}["EV-2"]["device_memory"]
    assert memory["at_start_bytes"] == left > 15 * MIB


def test_a_leak_is_extrapolated_to_the_step_it_failed_at(storage):
    capsule = fail(storage, planted.leak, 24)
    memory = {piece.id: piece.data for piece in capsule.evidence}["EV-2"]["device_memory"]
    # Beyond the first 32 steps a reading waits until the steps have taken a hundred times its cost.
    assert list(memory["steps"][:32]) == list(range(1, 33)) and 50 < memory["steps"][-1] <= 100
    growth = [b - a for a, b in itertools.pairwise(memory["allocated_after_step_bytes"])]
    assert min(growth) > 0
    assert memory["steps"][-1] < capsule.diagnosis.horizon_step <= memory["steps"][-1] + 4
    assert "it does not cure it" in capsule.headline and "260.0 KiB a step" in capsule.headline
