"""Failures that a smaller batch cures: none of them is given up on for a cause that was not measured."""

import gc
from types import SimpleNamespace

import planted
import pytest
import torch
from cause_vectors import static, vector
from torch import nn
from torch.utils.data import DataLoader

import watcherml
from watcherml.forensics.capsule import Capsule
from watcherml.forensics.causes.diagnose import control_only, diagnose, refuses, ruled_out, supported_capabilities
from watcherml.forensics.origin import frames
from watcherml.forensics.seen import Live, led_by
from watcherml.simulated.device import simulated_device

MIB = 2**20
BATCH = "micro_batch_size"


def fail(storage, program, config):
    """Run a program until it is out of memory; returns its diagnosis."""
    run = watcherml.Run("demo", config, storage, quiet=True)
    with pytest.raises(RuntimeError, match="SIMULATED"), run:
        program()
    assert not run.problems, run.problems
    return Capsule.from_json(storage.evidence.capsule(run.run_id)["document"]).diagnosis


def is_open(found):
    """Whether the ladder of smaller batches is tried."""
    assert not refuses(found) and not control_only(found), found.to_data()
    assert BATCH not in {name for name, _, _ in ruled_out(found)}
    return True


@pytest.fixture(autouse=True)
def clean():
    yield
    gc.collect()


def growing(batch):
    """The sequence grows with the steps, as a curriculum's does, and no loader tells its length."""
    model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(120):
        y = model(torch.randn(batch, 16 + 4 * step, 32))
        loss = y.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_a_curriculum_that_nobody_measured_is_no_leak(storage):
    with simulated_device(16 * MIB):
        found = fail(storage, lambda: growing(16), {"batch_size": 16})
    assert is_open(found) and "C10" in {one.id for one in found.unknown}, found.to_data()


def trained(model, batch, steps=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        model(torch.randn(batch, 256)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def deep():
    return nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.ReLU())])


def validate_epoch(model, batch):
    model.eval()
    return torch.stack([model(torch.randn(batch, 256)).pow(2).mean() for _ in range(40)])


def training_and_evaluation(batch):
    model = deep()
    trained(model, batch)
    validate_epoch(model, batch)


def objective(batch):
    """A search's: it trains a pretrained model, which is in evaluation mode, with a batch that grows."""

    def evaluate():
        model = deep().eval()
        trained(model, batch)
        trained(model, 16 * batch)

    evaluate()


def test_an_evaluation_that_keeps_its_graphs_after_training_is_told_from_an_objective_that_trains(storage):
    with simulated_device(16 * MIB):
        kept = fail(storage, lambda: training_and_evaluation(256), {"batch_size": 256})
        gc.collect()
        larger = fail(storage, lambda: objective(256), {"batch_size": 256})
    assert [one.id for one in kept.sufficient] == ["C16a"] and refuses(kept), kept.to_data()
    assert is_open(larger) and not {"C16a", "C16b"} & {one.id for one in larger.sufficient}


def one_layer(batch):
    model = nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 8))
    model(torch.randn(batch, 64)).pow(2).mean().backward()


def test_an_activation_larger_than_the_device_is_no_absurd_request(storage):
    with simulated_device(16 * MIB):
        found = fail(storage, lambda: one_layer(4096), {"batch_size": 4096})
        assert is_open(found) and "C2" in {one.id for one in found.excluded}, found.to_data()
        unknown = fail(storage, lambda: one_layer(4096), {})
        one_layer(256)
    assert is_open(unknown) and "C2" in {one.id for one in unknown.unknown}


@pytest.mark.parametrize(
    ("cause", "case"),
    [
        ("C26", {"f": 3.0}),
        ("C5", {"at_start": 9.0, "step": 0, "static": static(parameters=1.0, optimizer=0.0)}),
        ("C1", {"q": None, "error_is_disguised": True, "f": 0.01}),
    ],
)
def test_what_a_fresh_process_may_cure_does_not_take_the_ladder_away(cause, case):
    """The control is the first trial in any case, and where it fails as before the cause was another one."""
    found = diagnose(vector(**case))
    assert cause in {one.id for one in found.sufficient} and is_open(found)


@pytest.mark.parametrize("case", [{"foreign": 9.0}, {"own_other": 9.0}])
def test_memory_that_nvml_saw_in_other_hands_leaves_the_control_alone(case):
    assert control_only(diagnose(vector(**case)))


class Trainer:
    """Holds model and optimizer, as trainers do."""

    def __init__(self):
        self.model = planted.network(hidden=512)
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def fit(self, batch):
        for _ in range(3):
            self.optimizer.zero_grad()
            self.model(torch.randn(batch, 256)).pow(2).mean().backward()
            self.optimizer.step()


def test_the_second_try_with_the_same_trainer_finds_no_left_over(storage):
    with simulated_device(24 * MIB):
        trainer = Trainer()
        trainer.fit(16)
        for batch in (8192, 2048):
            found = fail(storage, lambda rows=batch: trainer.fit(rows), {"batch_size": batch})
            assert is_open(found) and "C5" not in {one.id for one in found.sufficient}, found.to_data()
        trainer.fit(64)


def test_attributes_of_an_object_are_looked_at_and_no_proxys_code_runs():
    class Proxy:
        @property
        def __dict__(self):
            raise AssertionError

    def inner(owner, proxy):
        raise RuntimeError

    trainer = Trainer()
    deep = SimpleNamespace(trainer=Trainer())
    with pytest.raises(RuntimeError) as caught:
        inner(trainer, Proxy())
    found = Live.look([one for one in frames(caught.value) if one[0].f_code.co_name == "inner"])
    assert found.modules == [trainer.model] and found.optimizers == [trainer.optimizer]
    with pytest.raises(RuntimeError) as caught:
        inner(deep, None)
    assert Live.look([one for one in frames(caught.value) if one[0].f_code.co_name == "inner"]).modules == []


@pytest.mark.parametrize(
    ("batch", "shape", "scales"), [(8, (8, 3), True), (8, (3, 8), None), (None, (8, 3), None), (1, (1, 3), None)]
)
def test_a_tensor_that_begins_with_the_micro_batch_scales(batch, shape, scales):
    def inner(x):
        raise RuntimeError

    with pytest.raises(RuntimeError) as caught:
        inner(torch.zeros(shape))
    assert led_by(batch, list(frames(caught.value))) is scales


def evaluate(rows):
    """Validation sorted by length, the shortest first; nothing is kept."""
    model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256))
    lengths = [8 + 8 * (at // 32) for at in range(32 * 30)]
    loader = DataLoader(lengths, batch_size=rows, collate_fn=lambda b: torch.randn(len(b), max(b), 32))
    model.eval()
    with watcherml.phase("evaluation"), torch.no_grad():
        for x in loader:
            out = model(x)
            out.pow(2).mean()


def test_a_validation_set_sorted_by_length_keeps_nothing(storage):
    with simulated_device(16 * MIB):
        found = fail(storage, lambda: evaluate(32), {"batch_size": 8})
        evaluate(8)
    assert is_open(found) and "C16b" in {one.id for one in found.unknown}, found.to_data()


def first_step(batch):
    """The loop still names its logits while the optimizer makes its state."""
    emb, head = nn.Embedding(2048, 128), nn.Linear(128, 2048)
    optimizer = torch.optim.AdamW([*emb.parameters(), *head.parameters()], foreach=False)
    x = torch.randint(0, 2048, (batch, 48))
    logits = head(emb(x))
    loss = nn.functional.cross_entropy(logits.view(-1, 2048), x.view(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def test_state_beside_activations_that_the_loop_keeps_leaves_the_batch_open(storage):
    with simulated_device(int(11.5 * MIB)):
        found = fail(storage, lambda: first_step(4), {"batch_size": 4})
        first_step(1)
    assert [one.id for one in found.sufficient] == ["C15"] and "C21" in {one.id for one in found.contributing}
    assert is_open(found) and BATCH in supported_capabilities(found)
    assert "smaller batch cannot help" not in found.sentence
