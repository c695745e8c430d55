"""Real training on the simulated device: what another stage or another training did is not taken for this one's."""

import planted_stages
import pytest
import torch

import watcherml
from watcherml.forensics.capsule import Capsule
from watcherml.forensics.seen import Live, had_stepped
from watcherml.simulated.device import simulated_device

MIB = 2**20


def fail(storage, program, budget, config=None):
    run = watcherml.Run("demo", config or {"batch_size": planted_stages.FEW}, storage, quiet=True)
    with pytest.raises(RuntimeError, match="SIMULATED"), run, simulated_device(int(budget * MIB)) as device:
        getattr(planted_stages, program)(device)
    assert not run.problems, run.problems
    return Capsule.from_json(storage.evidence.capsule(run.run_id)["document"])


def listed(found, name):
    return {one.id: one for one in getattr(found, name)}


def test_a_checkpoint_read_to_the_device_is_not_counted_as_the_model(storage):
    found = fail(storage, "checkpoint_beside_the_model", 11).diagnosis
    assert [one.id for one in found.sufficient] == ["C12b"], found.to_data()
    assert found.action.startswith("load the checkpoint to the CPU first")
    assert listed(found, "contributing")["C12"].bytes < 8 * MIB  # the model alone


def test_the_gradient_of_a_table_is_not_called_the_logits(storage):
    found = fail(storage, "gradient_of_a_table", 8).diagnosis
    assert found.phase == "backward" and not found.sufficient, found.to_data()
    assert "a parameter's gradient" in listed(found, "unknown")["C14"].sentence
    assert found.action.endswith("no smaller step helps")


def test_the_state_that_an_optimizer_makes_is_its_own_and_not_that_of_all(storage):
    found = fail(storage, "folds", 29).diagnosis
    own = 2 * 4 * (256 * 512 + 512 + 2 * (512 * 512 + 512) + 512 * 10 + 10)
    assert [(one.id, one.bytes) for one in found.sufficient] == [("C15", own)], found.to_data()
    assert "let go of those of the 3 models" in found.action


def test_another_optimizers_steps_do_not_exclude_the_state_of_the_one_that_begins(storage):
    found = fail(storage, "another_optimizer", 33).diagnosis
    assert [one.id for one in found.sufficient] == ["C15"], found.to_data()


def test_state_from_a_checkpoint_is_not_made_in_the_first_step_and_a_model_of_the_host_takes_nothing(storage):
    capsule = fail(storage, "resumed", 33)
    found, seen = capsule.diagnosis, {one.id: one.data for one in capsule.evidence}["EV-6"]
    assert found.phase == "optimizer" and "had made a step before" in listed(found, "excluded")["C15"].sentence
    assert "2 models" not in found.sentence, found.sentence
    assert (seen["separate_models"], seen["parameter_bytes"] < 8 * MIB) == (1, True), seen


def test_what_a_module_computes_while_it_is_built_is_no_step(storage):
    found = fail(storage, "table_of_a_module", 12).diagnosis
    assert found.phase == "load" and "C21" in listed(found, "excluded"), found.to_data()
    assert "micro-batch" not in found.action


def test_the_steps_of_a_second_training_count(storage):
    capsule = fail(storage, "second_training", 7)
    found, training = capsule.diagnosis, {one.id: one.data for one in capsule.evidence}["EV-2"]
    assert 50 < training["optimizer_steps"] < 100
    assert "C10b" in listed(found, "excluded"), found.to_data()
    assert "without an optimizer step" not in found.sentence and "kept from step to step" in found.action


def test_scores_are_not_excluded_because_a_backward_shows_no_line(storage):
    config = {"batch_size": 2, "sequence_length": 512}
    found = fail(storage, "pairs_in_backward", 22, config).diagnosis
    assert found.phase == "backward" and listed(found, "unknown")["C13"].bytes == 8 * MIB, found.to_data()


# What an optimizer keeps under "step", and whether it tells of steps before this run.
COUNTS = [(1, False), (2, True), (3.0, True), ("many", False), (None, False), ([5], False)]


@pytest.mark.parametrize(("count", "before"), COUNTS)
def test_only_a_plain_count_tells_of_earlier_steps(count, before):
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.Adam([weight])
    optimizer.state[weight] = {"step": count}
    assert had_stepped(Live(stepping=optimizer)) is before
    optimizer.state[weight] = {"step": torch.tensor([7.0, 8.0])}
    assert had_stepped(Live(stepping=optimizer)) is False and had_stepped(Live()) is None
