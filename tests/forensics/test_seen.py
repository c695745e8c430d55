"""Models, optimizers, tensors and sizes in the failing frames: exact bytes, no values, nothing kept."""

import gc
import json
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import watcherml
from watcherml.forensics import measured as measuring
from watcherml.forensics.causes.vector import History, Static, Vector
from watcherml.forensics.measured import worth_collecting
from watcherml.forensics.origin import frames
from watcherml.forensics.seen import Live, frame_tensors, models, static_bytes
from watcherml.forensics.shortfall import Shortfall
from watcherml.forensics.sizes import sizes
from watcherml.simulated.device import simulated_device

MIB = 2**20


def failing(**names):
    """The frames of a function that fails with these local names."""
    code = "def inner(names):\n    {} = names.values()\n    raise RuntimeError\n"
    space = {}
    exec(code.format(", ".join(names) + ","), space)
    with pytest.raises(RuntimeError) as caught:
        space["inner"](names)
    return [one for one in frames(caught.value) if one[0].f_code.co_name == "inner"]


OPTIMIZERS = [
    (lambda p: torch.optim.SGD(p, lr=0.1), 0),
    (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 1),
    (lambda p: torch.optim.Adam(p), 2),
    (lambda p: torch.optim.AdamW(p, amsgrad=True), 3),
    (lambda p: torch.optim.RMSprop(p), 1),
    (lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True), 3),
    (lambda p: torch.optim.Adagrad(p), 1),
    (lambda p: torch.optim.Adadelta(p), 2),
    (lambda p: torch.optim.Adamax(p), 2),
    (lambda p: torch.optim.NAdam(p), 2),
    (lambda p: torch.optim.RAdam(p), 2),
]


@pytest.mark.parametrize(("make", "copies"), OPTIMIZERS)
def test_an_optimizers_state_is_predicted_to_the_byte_and_then_summed(make, copies):
    model = nn.Linear(64, 64)
    optimizer = make(model.parameters())
    parameters = 4 * (64 * 64 + 64)
    expected = static_bytes(Live([model], [optimizer]), "cpu")
    assert (expected.parameters, expected.gradients, expected.optimizer_expected) == (
        parameters, 0, copies * parameters
    )  # fmt: skip
    model(torch.ones(1, 64)).sum().backward()
    optimizer.step()
    after = static_bytes(Live([model], [optimizer]), "cpu")
    # Beside what is as large as a parameter, some keep a step counter for each.
    assert after.gradients == parameters and 0 <= after.optimizer - copies * parameters <= 64


def test_an_optimizer_of_another_kind_is_not_guessed():
    model = nn.Linear(2, 2)
    lbfgs = torch.optim.LBFGS(model.parameters())
    assert static_bytes(Live([model], [lbfgs]), "cpu").optimizer_expected is None
    assert static_bytes(Live(), "cpu") == Static()
    assert static_bytes(Live([model], []), "cuda:0").parameters == 0


def test_shared_and_nested_modules_count_once():
    inner = nn.Linear(8, 8)
    outer = nn.Sequential(inner, inner, nn.BatchNorm1d(8))
    live = Live.look(failing(inner=inner, outer=outer, again=outer))
    assert static_bytes(live, "cpu").parameters == 4 * (8 * 8 + 8 + 16)
    assert static_bytes(live, "cpu").buffers == 2 * 4 * 8 + 8 and live.outermost() == [outer]


def test_frames_are_shown_as_shapes_and_bytes_and_never_as_values():
    found = failing(x=torch.full((2, 3), 12345.678), token="hunter2-secret-value", half=torch.zeros(4).half())
    shown = frame_tensors(found)
    assert shown[-1]["tensors"] == [
        {"name": "x", "shape": [2, 3], "dtype": "float32", "device": "cpu", "bytes": 24},
        {"name": "half", "shape": [4], "dtype": "float16", "device": "cpu", "bytes": 8},
    ]
    assert "12345" not in json.dumps(shown) and "hunter2" not in json.dumps(shown)


def test_a_shape_mismatch_has_the_shapes_in_its_evidence(storage):
    run = watcherml.Run("demo", {}, storage, quiet=True)

    def multiply(left, right):
        return left @ right

    with pytest.raises(RuntimeError), run:
        multiply(torch.ones(2, 3), torch.ones(4, 5))
    framework = {piece["id"]: piece["data"] for piece in storage.get_capsule(run.run_id)["evidence"]}["EV-6"]
    shapes = {row["name"]: row["shape"] for row in framework["failing_frames"][-1]["tensors"]}
    assert shapes == {"left": [2, 3], "right": [4, 5]}


class Language(nn.Module):
    def __init__(self, heads=4):
        super().__init__()
        self.embed = nn.Embedding(1000, 16)
        self.attention = nn.MultiheadAttention(16, heads)
        self.config = SimpleNamespace(vocab_size=1000, use_cache=True)


SIZES = [
    ({"batch_size": 8, "gradient_accumulation_steps": 4}, {}, (8, 4, None, None, None)),
    ({"training": {"per_device_train_batch_size": 2}, "model": {"block_size": 512}}, {}, (2, None, 512, None, None)),
    ({"batch_size": True, "max_length": -1, "n_head": "12"}, {}, (None, None, None, None, None)),
    ({"batch_size": 8, "seq_len": 512}, {"ids": torch.zeros(8, 317, dtype=torch.int64)}, (8, None, 317, None, None)),
    ({"batch_size": 8, "seq_len": 512}, {"table": torch.zeros(3, 9, dtype=torch.int64)}, (8, None, 512, None, None)),
    ({}, {"model": Language(), "ids": torch.zeros(5, 7, dtype=torch.int64)}, (5, None, 7, 1000, 4)),
]


@pytest.mark.parametrize(("config", "names", "wanted"), SIZES)
def test_sizes_come_from_the_frames_first_then_the_configuration(config, names, wanted):
    found = failing(**{"nothing": None, **names})
    made = sizes(config, found, Live.look(found))
    assert (made.micro_batch, made.accumulation, made.sequence_length, made.vocabulary, made.heads) == wanted


def vector(*, allocated=(), evaluation=(), at_start=0, phase="forward", short=10 * MIB, own=0, held=0):
    return Vector("simulated", phase, 1, None, 100 * MIB, None, None, held, held, Shortfall(short, short),
                  at_start=at_start, static=Static(parameters=own),
                  history=History(allocated=tuple(allocated), evaluation=tuple(evaluation)))  # fmt: skip


@pytest.mark.parametrize(
    ("case", "worth"),
    [
        (vector(), False),
        (vector(allocated=(MIB, MIB, MIB)), False),
        (vector(allocated=(MIB, 20 * MIB)), True),
        (vector(allocated=(MIB, 6 * MIB), short=MIB), True),
        (vector(allocated=(MIB, 4 * MIB), short=MIB), False),
        (vector(evaluation=(MIB, 20 * MIB), phase="evaluation"), True),
        (vector(at_start=50 * MIB), True),
        (vector(phase="load", held=80 * MIB, own=79 * MIB), False),
        (vector(phase="load", held=80 * MIB, own=40 * MIB), True),
    ],
)
def test_garbage_is_collected_only_where_it_could_matter(case, worth):
    assert worth_collecting(case) is worth


@pytest.mark.parametrize("name", ["grad_enabled", "static_bytes", "sizes", "_history", "_key", "models"])
def test_a_measurement_that_breaks_costs_itself_and_nothing_else(storage, monkeypatch, name):
    def broken(*_, **__):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(measuring, name, broken)
    run = watcherml.Run("demo", {}, storage, quiet=True)
    with pytest.raises(RuntimeError), run, simulated_device("1 MiB"):
        torch.zeros(MIB)
    capsule = storage.get_capsule(run.run_id)
    assert capsule["failure"]["class"] == "simulated_out_of_memory" and capsule["diagnosis"]["sentence"]
    framework = {piece["id"]: piece["data"] for piece in capsule["evidence"]}["EV-6"]
    assert any("planted" in one for one in framework["not_measured"])


def test_a_capsule_keeps_nothing_of_the_training_alive(storage):
    run = watcherml.Run("demo", {}, storage, quiet=True)
    seen = []

    def train():
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        seen.extend([weakref.ref(model), weakref.ref(optimizer)])
        for rows in (8, 8, 4096):
            model(torch.ones(rows, 64)).sum().backward()
            optimizer.step()

    gc.collect()
    gc.disable()
    try:
        try:
            with run, simulated_device("1 MiB") as device:
                train()
        except RuntimeError:
            pass
        assert [one() for one in seen] == [None, None]
        assert device.current_bytes == 0
    finally:
        gc.enable()


WRAPPED = {
    "vmap": lambda call: torch.func.vmap(call)(torch.ones(3, 4)),
    "grad": lambda call: torch.func.grad(call)(torch.ones(3)),
    "functionalize": lambda call: torch.func.functionalize(call)(torch.ones(3)),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_tensors_that_torch_func_wraps_do_not_cost_the_bytes_of_the_model(name):
    model = nn.Linear(4, 4)

    def fails(x):
        kept = [x * number for number in range(10)]
        model(torch.ones(1, 4))
        raise ArithmeticError(len(kept))

    with pytest.raises(ArithmeticError) as caught, simulated_device("1 MiB") as device:
        WRAPPED[name](fails)
    found = static_bytes(Live.look(frames(caught.value)), "cpu", device.holds)
    assert (found.parameters, found.kept) == (80, 0)


def test_a_lazy_module_that_has_seen_no_batch_has_no_bytes_yet():
    model = nn.Sequential(nn.Linear(4, 4), nn.LazyLinear(4))
    live = Live.look(failing(model=model, optimizer=torch.optim.SGD(model.parameters())))
    assert static_bytes(live, "cpu").parameters == 80 and models(live)[0]["parameters"] == 20
