"""In which part of training something failed: real tracebacks of torch, marks, what frames show of the modes."""

import importlib
import sys

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

import watcherml
from watcherml.forensics.modes import grad_enabled, module_training
from watcherml.forensics.origin import chain, frames, names_of
from watcherml.forensics.phases import phase_of_exception, phase_of_frames
from watcherml.simulated.device import simulated_device


class Boom(RuntimeError):
    pass


class Layer(nn.Module):
    """Fails in forward once it is armed."""

    def __init__(self, armed=True):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.armed = armed

    def forward(self, x):
        hidden = self.inner(x)
        if self.armed:
            raise Boom
        return hidden


class Silent(nn.Module):
    """Fails in forward and shows no graph."""

    def forward(self, x):
        raise Boom


class Second(Layer):
    """Fails the second time it runs: while a checkpoint recomputes it."""

    runs = 0

    def forward(self, x):
        self.runs += 1
        if self.runs > 1:
            return nn.functional.linear(x, torch.ones(9, 9))
        return self.inner(x)


class OwnFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, where):
        ctx.where = where
        if where == "forward":
            raise Boom
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        raise Boom


class Wrapped(nn.Module):
    def __init__(self, where):
        super().__init__()
        self.where = where

    def forward(self, x):
        return OwnFunction.apply(x, self.where)


class Items(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        raise Boom


def x():
    return torch.ones(2, 4, requires_grad=True)


def forward():
    Layer()(x())


def loss():
    nn.functional.cross_entropy(torch.ones(2, 4), torch.zeros(3, dtype=torch.int64))


def recompute():
    checkpoint(Second(), x(), use_reentrant=False).sum().backward()


def recompute_reentrant():
    checkpoint(Second(), x(), use_reentrant=True).sum().backward()


def own_forward():
    Wrapped("forward")(x())


def own_backward():
    Wrapped("backward")(x()).sum().backward()


def hook():
    value = x()
    value.register_hook(lambda grad: nn.functional.linear(grad, torch.ones(9, 9)))
    (value * 2).sum().backward()


def optimizer():
    parameter = nn.Parameter(torch.ones(2))
    made = torch.optim.Adam([parameter])
    made.register_step_pre_hook(lambda *_: (_ for _ in ()).throw(Boom()))
    parameter.sum().backward()
    made.step()


def load():
    nn.Linear(2, 2).load_state_dict({"weight": torch.ones(3, 3)})


def build():
    nn.Linear(-1, 2)


def move():
    nn.Linear(2, 2).to("no such device")


def data():
    next(iter(DataLoader(Items())))


def save():
    torch.save(nn.Linear(2, 2), "/no/such/folder/model.pt")


def validate():
    Silent()(torch.ones(2, 4))  # nothing says whether gradients were on


def run_evaluation_step():
    Silent()(torch.ones(2, 4))


def evaluate():
    """An objective of a search: it trains."""
    Layer()(x())


def without_gradients():
    with torch.no_grad():
        Layer()(x())


@torch.inference_mode()
def decorated():
    Layer()(torch.ones(2, 4))


def own_arithmetic():
    return torch.ones(2, 3) @ torch.ones(2, 3)


CASES = [
    (forward, "forward"), (loss, "forward"), (recompute, "recompute"), (recompute_reentrant, "recompute"),
    (own_forward, "forward"), (own_backward, "backward"), (hook, "backward"), (optimizer, "optimizer"),
    (load, "load"), (build, "load"), (move, "load"), (data, "data"), (save, "checkpoint"),
    (evaluate, "forward"), (validate, "evaluation"), (run_evaluation_step, "evaluation"),
    (without_gradients, "evaluation"), (decorated, "evaluation"), (own_arithmetic, "unknown"),
]  # fmt: skip


def caught(call):
    with pytest.raises(Exception) as found:
        call()
    return found.value


@pytest.mark.parametrize(("call", "phase"), CASES, ids=[call.__name__ for call, _ in CASES])
def test_a_real_traceback_tells_its_phase(call, phase):
    assert phase_of_exception(caught(call)) == phase


def test_the_cause_tells_where_its_wrapper_does_not():
    def wrapping():
        try:
            recompute()
        except Boom as error:
            raise RuntimeError("the trainer failed") from error

    assert phase_of_exception(caught(wrapping)) == "recompute"


@pytest.mark.parametrize("name", ["load", "data", "forward", "backward", "recompute", "optimizer", "evaluation"])
def test_a_mark_wins_over_the_traceback(name):
    def marked():
        with watcherml.phase(name):
            Layer()(x())

    assert phase_of_exception(caught(marked)) == name


def test_evaluation_mode_alone_is_no_evaluation():
    """Pretrained models start in evaluation mode, and some people train them so."""

    def training_so():
        Layer().eval()(x())

    error = caught(training_so)
    assert phase_of_exception(error) == "forward"
    assert phase_of_exception(error, other_loader=True) == "evaluation"
    assert module_training(list(frames(error))) is False


def test_the_name_of_a_function_says_evaluation_only_where_gradients_may_be_off():
    error = caught(evaluate)
    assert phase_of_exception(error) == phase_of_exception(error, other_loader=True) == "forward"
    trace = [("train.py", "evaluate"), ("/x/torch/nn/modules/module.py", "_call_impl")]
    assert phase_of_frames(trace, training=False, grad_enabled=True) == "forward"
    assert phase_of_frames(trace, training=True, grad_enabled=True, other_loader=True) == "forward"
    assert phase_of_frames(trace, training=False, grad_enabled=True, other_loader=True) == "evaluation"
    assert phase_of_frames(trace, grad_enabled=True, other_loader=True) == "evaluation"
    # A model that was trained elsewhere and is now in evaluation mode, below a function of that name.
    fit = {"fit", "<module>"}
    assert phase_of_frames(trace, training=False, grad_enabled=True, stepping=fit) == "evaluation"
    assert phase_of_frames(trace, training=False, grad_enabled=True, stepping={"evaluate", *fit}) == "forward"
    assert phase_of_frames(trace, training=True, grad_enabled=True, stepping=fit) == "forward"
    assert phase_of_frames(trace, grad_enabled=True, stepping=fit) == "forward"
    unnamed = [("train.py", "fit"), *trace[1:]]
    assert phase_of_frames(unnamed, training=False, grad_enabled=True, stepping=fit) == "forward"
    assert phase_of_frames(trace, grad_enabled=None) == phase_of_frames(trace, grad_enabled=False) == "evaluation"


def test_paths_of_windows_and_of_other_projects():
    engine = ("C:\\x\\torch\\autograd\\graph.py", "_engine_run_backward")
    assert phase_of_frames([("C:\\train.py", "train"), engine]) == "backward"
    assert phase_of_frames([("/home/x/optim/loop.py", "backward"), ("/home/x/data/a.py", "grad")]) == "unknown"
    scheduler = ("/x/torch/optim/lr_scheduler.py", "step")
    assert phase_of_frames([("train.py", "f"), scheduler]) == "unknown"


@pytest.mark.parametrize(
    ("call", "mode"),
    [(without_gradients, False), (decorated, False), (forward, True), (own_arithmetic, None), (data, None)],
)
def test_the_gradient_mode_of_the_failure_is_seen_afterwards(call, mode):
    error = caught(call)
    assert torch.is_grad_enabled()
    assert grad_enabled(error, list(frames(error))) is mode


class TemplateOptimizer(torch.optim.SGD):
    """After torch's own template."""

    @torch.no_grad()
    def step(self, closure=None):
        with torch.enable_grad():
            return closure()


@pytest.mark.parametrize("kind", [torch.optim.LBFGS, torch.optim.SGD, TemplateOptimizer])
@pytest.mark.parametrize("around", [torch.no_grad, torch.enable_grad])
def test_a_closure_runs_with_gradients_whatever_the_optimizer_switched_off(kind, around):
    layer = Silent()
    layer.weight = nn.Parameter(torch.ones(2))
    made = kind([layer.weight], lr=0.1)

    def closure():
        assert torch.is_grad_enabled()
        layer(torch.ones(2, 4))

    def stepping():
        with around():
            made.step(closure)

    error = caught(stepping)
    assert grad_enabled(error, list(frames(error))) is True and phase_of_exception(error) == "forward"


@pytest.mark.parametrize("kind", [torch.optim.LBFGS, torch.optim.SGD, TemplateOptimizer])
def test_what_an_optimizer_only_calls_is_not_the_optimizer_s(kind):
    made = kind([nn.Parameter(torch.ones(2))], lr=0.1)

    def closure():
        raise Boom  # as any operation on tensors outside of a module and torch.nn.functional does

    assert phase_of_exception(caught(lambda: made.step(closure))) == "unknown"
    lightning = "lightning/pytorch/loops/optimization/automatic.py"
    outer = [(lightning, "_optimizer_step"), ("torch/optim/adam.py", "step")]
    outer = [(f"/lib/{file}", function) for file, function in outer]
    inner = [(f"/lib/{lightning}", "__call__"), ("/home/me/model.py", "training_step")]
    assert phase_of_frames(outer) == "optimizer"
    assert phase_of_frames(outer + inner) == "unknown"
    assert phase_of_frames([*outer, *inner, ("/lib/torch/_tensor.py", "backward")]) == "backward"


def innermost_wins(training):
    with torch.enable_grad():
        with torch.no_grad():
            Silent()(torch.ones(2, 4))


def last_item_wins(training):
    with torch.no_grad(), torch.set_grad_enabled(True):
        Silent()(torch.ones(2, 4))


def by_a_variable(training):
    with torch.no_grad():
        with torch.set_grad_enabled(mode=training):
            Silent()(torch.ones(2, 4))


def by_an_expression(training):
    with torch.no_grad():
        with torch.set_grad_enabled(training == 1):
            Silent()(torch.ones(2, 4))


def inference_mode_off(training):
    with torch.no_grad(), torch.inference_mode(False):
        Silent()(torch.ones(2, 4))


@torch.enable_grad()
def inner_decorator(training):
    Silent()(torch.ones(2, 4))


@torch.no_grad()
def outer_decorator(training):
    inner_decorator(training)


def defined_inside(training):
    with torch.no_grad():

        def later():
            Silent()(torch.ones(2, 4))

    later()


@pytest.mark.parametrize(
    ("call", "training", "mode"),
    [
        (innermost_wins, True, False), (last_item_wins, True, True), (by_a_variable, True, True),
        (by_a_variable, False, False), (by_an_expression, True, None), (inference_mode_off, True, True),
        (outer_decorator, True, True), (defined_inside, True, None),
    ],
)  # fmt: skip
def test_the_innermost_switch_decides(call, training, mode):
    error = caught(lambda: call(training))
    assert grad_enabled(error, list(frames(error))) is mode


def test_a_with_that_was_left_before_does_not_count():
    def later():
        with torch.no_grad():
            pass
        Layer()(x())

    error = caught(later)
    assert grad_enabled(error, list(frames(error))) is True


def test_looking_at_a_running_function_keeps_nothing_of_it_alive():
    """Before Python 3.13 a look at f_locals stores the values on the frame."""

    class Big:
        gone = False

        def __del__(self):
            Big.gone = True

    def running():
        big = Big()
        try:
            raise Boom
        except Boom as error:
            seen = next(names_of(frame) for frame, _ in frames(error))
        assert isinstance(seen["big"], Big)
        del seen, big
        return Big.gone

    assert running()


def test_a_dict_that_the_user_took_from_locals_stays_as_it_is():
    def running():
        rate = 0.1
        kept = locals()
        try:
            raise Boom
        except Boom as error:
            names_of(next(iter(frames(error)))[0])
        return kept, rate

    kept, rate = running()
    assert kept["rate"] == rate


def test_a_chain_of_exceptions_ends_even_if_it_goes_in_circles():
    one, two = Boom(), Boom()
    one.__cause__, two.__cause__ = two, one
    assert chain(one) == [one, two]
    hidden = Boom()
    one.__cause__, one.__context__, one.__suppress_context__ = None, hidden, True
    assert chain(one) == [one]
    if sys.version_info >= (3, 11):
        group = importlib.import_module("builtins").ExceptionGroup("several", [one, two])
        assert chain(group) == [group, one, two]


class Wide(nn.Module):
    """A block of a model that makes a tensor which does not fit."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(64, 64)

    def forward(self, x):
        return self.inner(x).repeat(1_000, 1)


def wide_forward(block, x):
    checkpoint(block, x, use_reentrant=True)


def wide_evaluation(block, x):
    with torch.no_grad():
        checkpoint(block, x, use_reentrant=True)


class Own(torch.autograd.Function):
    """torch switches gradients off around its forward, in training too."""

    @staticmethod
    def forward(ctx, x):
        return x.repeat(1_000, 1)


def own_function(block, x):
    Own.apply(x)


def own_function_without(block, x):
    with torch.no_grad():
        block.inner(Own.apply(x))


def wide_with_gradients(block, x):
    with torch.no_grad(), torch.enable_grad():
        checkpoint(block, x, use_reentrant=True)


@pytest.mark.parametrize(
    ("call", "phase"),
    [
        (wide_forward, "forward"), (wide_evaluation, "evaluation"), (wide_with_gradients, "forward"),
        (own_function, "forward"), (own_function_without, "evaluation"),
    ],
)  # fmt: skip
def test_what_switches_gradients_off_on_its_way_forward_is_what_is_around_it(call, phase):
    """The simulated device notes the mode at the refusal, which is off inside the block."""

    def refused():
        with simulated_device("64 KiB"):
            call(Wide(), torch.ones(4, 64, requires_grad=True))

    error = caught(refused)
    assert type(error).__name__ == "SimulatedOutOfMemoryError" and error.grad_enabled is False
    assert phase_of_exception(error) == phase
