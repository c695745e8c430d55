"""Changed controls read back from real trainings: by workers, and in this process for what takes many shapes."""

import shutil
import sys
import time
from pathlib import Path

import pytest
from builders import plan as make_plan
from builders import request as make_request

from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.protocol.proposal import Change
from watcherml.protocol.request import Launch
from watcherml.sealed.device import Device
from watcherml.store.storage import Storage
from watcherml.trials.knobs import readings
from watcherml.trials.runner import LocalExecutor
from watcherml.trials.seen import Seen
from watcherml.trials.watching import Watching

torch = pytest.importorskip("torch")
nn = torch.nn

BIT_OPTIMIZER = """
import torch

class AdamW8bit(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure=None):
        for one in self.param_groups[0]["params"]:
            self.state[one]["state1"] = torch.zeros(one.shape, dtype=torch.uint8)
            one.sub_(one.grad, alpha=0.01)
"""
CACHE = "class Cache:\n    def __init__(self): pass\n\nclass DynamicCache(Cache):\n    pass\n"
CHANGES = (
    Change("micro_batch_size", ("batch",), 8, 4),
    Change("gradient_accumulation_steps", ("accumulation",), "1", "2", 2),
    Change("gradient_checkpointing", ("checkpointing",), False, True),
    Change("precision", ("precision",), "32-true", "bf16-mixed", "bf16"),
    Change("attention_backend", ("attention",), "eager", "sdpa"),
    Change("optimizer_bits", ("bits",), 32, 8),
    Change("model_cache", ("cache",), True, False),
    Change("sequence_length", ("length",), 32, 16),
    Change("parameter_offload", ("offload",), False, True),
)
CONFIG = {one.path[0]: one.after for one in CHANGES} | {"accumulation": 2}


@pytest.fixture(scope="module")
def read_back(tmp_path_factory):
    """Run a function of ``knob_entrypoint`` as a trial and return its readings by capability."""
    folder = tmp_path_factory.mktemp("knobs")
    for package, module, text in (("bitsandbytes", "optim", BIT_OPTIMIZER), ("transformers", "cache_utils", CACHE)):
        (folder / "project" / package).mkdir(parents=True)
        (folder / "project" / package / "__init__.py").touch()
        (folder / "project" / package / f"{module}.py").write_text(text)
    shutil.copy(Path(__file__).with_name("knob_entrypoint.py"), folder / "project")
    storage = Storage(folder / ".watcherml")
    storage.create()
    executor = LocalExecutor(storage.path)

    def run(function, device, number):
        plan = make_plan(device=device)
        request = make_request(
            plan, "probe", number, "batch-32x2", entrypoint=TrainingEntrypoint(f"knob_entrypoint:{function}"),
            config=CONFIG, changes=CHANGES, max_steps=3, timeout_seconds=90.0, trial_id=f"knobs-read-back-{number}",
        )  # fmt: skip
        executor.submit(request, Launch(request.digest, "demo", str(folder / "project"), str(storage.path),
                                        sys.executable, None))  # fmt: skip
        while (result := executor.poll(request.trial_id)) is None:
            time.sleep(0.05)
        assert result.outcome == "completed", result.sentence
        assert len(result.knobs) == len(CHANGES)
        return {one.capability: (one.state, one.observed) for one in result.knobs}

    return run


SIMULATED = Device("simulated", "simulated-cpu-budget", 200 * 2**20)


def test_a_training_that_does_what_its_configuration_says_is_seen_to(read_back):
    found = read_back("obeys", SIMULATED, 1)
    states = {name: state for name, (state, _) in found.items()}
    assert states.pop("parameter_offload") == "not_observable"
    assert set(states.values()) == {"in_effect"}, found
    words = {name: observed for name, (_, observed) in found.items()}
    assert words["micro_batch_size"] == "forward passes begin with 4 rows"
    assert words["gradient_accumulation_steps"] == "2 backward passes for each optimizer step"
    assert words["gradient_checkpointing"] == "torch.utils.checkpoint ran 6 times"
    assert "autocast to bfloat16" in words["precision"] and "parameters are float32" in words["precision"]
    assert "ScaledDotProduct" in words["attention_backend"]
    assert words["optimizer_bits"] == "bitsandbytes.optim.AdamW8bit keeps uint8"
    assert words["sequence_length"] == "the longest tokens of an embedding are 16 a row"


def test_a_training_that_ignores_its_configuration_is_denied_what_it_did_not_do(read_back):
    found = read_back("ignores", Device("none"), 2)
    states = {name: state for name, (state, _) in found.items()}
    # Rows of a batch may be counted another way, so that they deny nothing; the control trial does.
    assert states.pop("micro_batch_size") == states.pop("parameter_offload") == "not_observable"
    assert set(states.values()) == {"not_in_effect"}, found
    words = {name: observed for name, (_, observed) in found.items()}
    assert words["gradient_accumulation_steps"] == "1 backward pass for each optimizer step"
    assert "no autocast; modules got float32" in words["precision"]
    assert words["optimizer_bits"] == "torch.optim.adamw.AdamW keeps float32"
    assert words["model_cache"] == "1 key-value caches were made in training"


# -- in this process -----------------------------------------------------------------------------------------------


def small(width=4, depth=2):
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))


def steps(model, optimizer=None, rows=4, count=2, run=None, accumulate=1):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(count):
        for _ in range(accumulate):
            (run or model)(torch.randn(rows, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def reading(train, capability, after, before=None, meaning=None):
    seen = Seen()
    watching = Watching(seen)
    watching.start()
    try:
        train()
    finally:
        watching.stop()
    (found,) = readings((Change(capability, ("x",), before, after, meaning),), seen)
    return found.state, found.observed


def checkpointed(reentrant):
    def train():
        model = small()
        run = torch.utils.checkpoint.checkpoint
        steps(model, run=lambda x: run(model, x.requires_grad_(), use_reentrant=reentrant))

    return train


class OwnCheckpoint(torch.autograd.Function):
    """What some libraries bring along instead of torch's."""

    @staticmethod
    def forward(ctx, run, x, weight):
        ctx.run = run
        ctx.save_for_backward(x)
        with torch.no_grad():
            return run(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            torch.autograd.backward(ctx.run(x), grad)
        return None, x.grad, None


def own_checkpoint():
    model = small()
    steps(model, run=lambda x: OwnCheckpoint.apply(model, model[0](x), model[0].weight))


def evaluates_only_with_it():
    model = small()
    with torch.no_grad():
        torch.utils.checkpoint.checkpoint(model, torch.randn(2, 4), use_reentrant=False)
    steps(model)


def halves_its_parameters():
    model = small().bfloat16()
    steps(model, run=lambda x: model(x.bfloat16()))


def autocast_in_evaluation_only():
    model = small()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        model(torch.randn(2, 4))
    steps(model)


def attends(dropout=0.0, module=False):
    def train():
        model = nn.MultiheadAttention(4, 2, batch_first=True, dropout=dropout) if module else small()

        def run(x):
            if module:
                x = x[:, None].expand(-1, 3, -1)
                return model(x, x, x, need_weights=False)[0]
            x = x[:, None, None].expand(-1, 2, 3, -1)
            return nn.functional.scaled_dot_product_attention(model(x), x, x, dropout_p=dropout)

        steps(model, run=run)

    return train


class Stated(nn.Module):
    """A model that says in a configuration object what it does."""

    def __init__(self, **values):
        super().__init__()
        self.config, self.inner = type("Config", (), {})(), small()
        vars(self.config).update(values)

    def forward(self, x):
        return self.inner(x)


def stated(**values):
    return lambda: steps(Stated(**values))


def two_losses():
    first, second = small(), small()
    one, two = (torch.optim.SGD(part.parameters(), 0.1) for part in (first, second))
    for _ in range(3):
        for part, optimizer in ((first, one), (second, two)):
            for _ in range(2):
                part(torch.randn(2, 4)).sum().backward()
            optimizer.step()


def last_batch_is_short():
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for rows in (8, 8, 8, 4):
        steps(model, optimizer, rows=rows, count=1)


def saves_on_the_host():
    with torch.autograd.graph.save_on_cpu():
        steps(small())


SHAPES = [
    (checkpointed(True), "gradient_checkpointing", True, False, "in_effect", "reentrant torch.utils.checkpoint ran"),
    (checkpointed(False), "gradient_checkpointing", True, False, "in_effect", "ran 2 times"),
    (own_checkpoint, "gradient_checkpointing", True, False, "in_effect", "modules ran again"),
    (evaluates_only_with_it, "gradient_checkpointing", True, False, "not_in_effect", "did not run"),
    (checkpointed(True), "gradient_checkpointing", False, True, "not_in_effect", "ran"),
    (halves_its_parameters, "precision", "bf16", "fp32", "in_effect", "parameters are bfloat16"),
    (halves_its_parameters, "precision", "fp16", "fp32", "not_in_effect", "modules got bfloat16"),
    (autocast_in_evaluation_only, "precision", "bf16", "fp32", "not_in_effect", "no autocast"),
    (lambda: steps(small().double(), run=None, count=0), "precision", "fp32", "fp64", "not_observable", ""),
    (lambda: steps(small()), "precision", "fp8", "fp32", "not_observable", "fp8"),
    (lambda: steps(small()), "precision", "fp32", "fp64", "in_effect", "float32"),
    (attends(), "attention_backend", "sdpa", "eager", "in_effect", "ScaledDotProduct"),
    (attends(module=True), "attention_backend", "sdpa", "eager", "in_effect", "ScaledDotProduct"),
    (attends(dropout=0.1), "attention_backend", "sdpa", "eager", "in_effect", "scores are kept"),
    (attends(), "attention_backend", "flash_attention_2", "eager", "not_observable", "Flash"),
    (attends(), "attention_backend", "eager", "sdpa", "not_in_effect", "ScaledDotProduct"),
    (attends(), "memory_efficient_attention", True, False, "in_effect", "ScaledDotProduct"),
    (lambda: steps(small()), "attention_backend", "sdpa", "eager", "not_observable", "no attention"),
    (stated(_attn_implementation="eager"), "attention_backend", "sdpa", "eager", "not_in_effect", "eager"),
    (stated(_attn_implementation_internal="sdpa"), "attention_backend", "sdpa", "eager", "in_effect", "sdpa"),
    (stated(use_cache=False), "model_cache", False, True, "in_effect", "use_cache: False"),
    (stated(use_cache=True), "model_cache", False, True, "not_observable", "use_cache: True"),
    (two_losses, "gradient_accumulation_steps", 2, 1, "not_observable", "4 backward passes"),
    (lambda: steps(small(), accumulate=2), "gradient_accumulation_steps", "2", "1", "in_effect", "2 backward"),
    (lambda: steps(small()), "gradient_accumulation_steps", 2, 1.0, "not_in_effect", "1 backward"),
    (last_batch_is_short, "micro_batch_size", 4, 8, "not_observable", "8 rows"),
    (last_batch_is_short, "micro_batch_size", 8, 16, "in_effect", "8 rows"),
    (lambda: steps(small()), "micro_batch_size", 4.0, 8.0, "in_effect", "4 rows"),
    (lambda: steps(small()), "optimizer_bits", 8, 32, "not_observable", "keeps no state"),
    (saves_on_the_host, "activation_offload", True, False, "in_effect", "save_on_cpu"),
    (lambda: steps(small()), "activation_offload", True, False, "not_observable", ""),
    (lambda: steps(small(), count=0), "gradient_checkpointing", True, False, "not_observable", ""),
]  # fmt: skip


@pytest.mark.parametrize(("train", "capability", "after", "before", "state", "words"), SHAPES)
def test_what_a_training_shows(train, capability, after, before, state, words, monkeypatch):
    # Where an earlier test has loaded that library, its caches would be counted as well.
    for name in [one for one in sys.modules if one.partition(".")[0] == "transformers"]:
        monkeypatch.delitem(sys.modules, name)
    found = reading(train, capability, after, before)
    assert found[0] == state, found
    assert words in found[1]


def test_what_cannot_be_seen_is_said_and_not_denied():
    def arithmetic():
        weight = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], 0.1)
        for _ in range(3):
            (weight * 2).sum().backward()
            optimizer.step()

    seen = Seen()
    watching = Watching(seen)
    watching.start()
    try:
        arithmetic()
    finally:
        watching.stop()
    found = {one.capability: one for one in readings(CHANGES, seen)}
    assert found.pop("gradient_accumulation_steps").state == "not_in_effect"
    assert {one.state for one in found.values()} == {"not_observable"}, found
    assert all(one.observed for one in found.values())
    without_torch = readings(CHANGES, None)
    assert {(one.state, one.observed) for one in without_torch} == {
        ("not_observable", "torch was not loaded in the trial")
    }
    assert len(without_torch) == len(CHANGES)


def test_a_number_that_is_no_number_denies_nothing():
    assert reading(lambda: steps(small()), "gradient_accumulation_steps", 2, None)[0] == "not_observable"
    assert reading(lambda: steps(small()), "gradient_accumulation_steps", 2, True)[0] == "not_observable"


def test_a_compiled_model_is_denied_nothing_and_nothing_of_ours_is_traced(monkeypatch):
    backward, hooks = torch.autograd.backward, len(nn.modules.module._global_forward_pre_hooks)
    during = []

    def train():
        monkeypatch.setattr(torch, "compile", torch.compile)  # put back whatever happens
        torch.compile(small(), backend="eager", disable=True)
        during.extend([torch.autograd.backward, len(nn.modules.module._global_forward_pre_hooks)])
        steps(small())

    assert reading(train, "gradient_accumulation_steps", 2, 1)[0] == "not_observable"
    assert reading(train, "gradient_checkpointing", True, False)[0] == "not_observable"
    assert during[:2] == [backward, hooks]


def test_nothing_is_left_in_torch_and_nothing_is_kept_alive():
    import gc
    import importlib
    import weakref

    optimizers = importlib.import_module("torch.optim.optimizer")
    module = importlib.import_module("torch.utils.checkpoint")

    def state():
        return (torch.autograd.backward, torch.compile, module._checkpoint_without_reentrant_generator,
                torch.autograd.graph.save_on_cpu.__init__, len(nn.modules.module._global_forward_pre_hooks),
                len(optimizers._global_optimizer_post_hooks))  # fmt: skip

    before, held = state(), []

    def train():
        model = small()
        optimizer = torch.optim.Adam(model.parameters())
        steps(model, optimizer)
        held.extend([weakref.ref(model), weakref.ref(optimizer)])

    reading(train, "precision", "bf16")
    gc.collect()
    assert state() == before and [one() for one in held] == [None, None]


def test_an_error_of_the_watching_is_a_reason_and_no_error_of_the_training(monkeypatch):
    monkeypatch.setattr(Watching, "_look_at_call", lambda *_: 1 / 0)
    monkeypatch.setattr(Watching, "_walk", lambda *_: 1 / 0)
    monkeypatch.setattr(Watching, "_look_at_optimizer", lambda *_: 1 / 0)
    for capability, after, before in (("gradient_accumulation_steps", 2, 1), ("gradient_checkpointing", True, False)):
        state, observed = reading(lambda: steps(small()), capability, after, before)
        assert state == "not_observable" and ("ZeroDivisionError" in observed or "no module" in observed)


def test_another_torch_that_lacks_a_name_still_shows_the_rest(monkeypatch):
    monkeypatch.delattr(torch.utils.checkpoint, "_checkpoint_without_reentrant_generator")
    assert reading(lambda: steps(small(), accumulate=2), "gradient_accumulation_steps", 2, 1)[0] == "in_effect"
    state, observed = reading(lambda: steps(small()), "gradient_checkpointing", True, False)
    assert state == "not_observable" and "checkpoint" in observed


def test_looking_ends_and_what_is_kept_is_bounded(monkeypatch):
    from watcherml.trials import watching as module

    monkeypatch.setattr(module, "MOST_CALLS", 20)
    model, seen = small(depth=5), Seen()
    watching = Watching(seen)
    before = len(nn.modules.module._global_forward_pre_hooks)
    watching.start()
    try:
        steps(model, rows=3, count=80)
        assert len(nn.modules.module._global_forward_pre_hooks) == before and seen.calls == 20
        assert seen.steps == 80 and sum(seen.backwards.values()) == 64
    finally:
        watching.stop()


def test_what_cannot_be_read_of_one_control_costs_neither_the_others_nor_the_trial():
    """A thread that training left behind may change a set while it is looked at."""
    broken = Seen(steps=2, calls=2, first_rows=7, autocast={"bfloat16"}, types={"float32"})
    found = {one.capability: (one.state, one.observed) for one in readings(CHANGES, broken)}
    assert found["micro_batch_size"][0] == "not_observable" and "TypeError" in found["micro_batch_size"][1]
    assert found["precision"][0] == "in_effect" and set(found) == {one.capability for one in CHANGES}
