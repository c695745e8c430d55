"""Running out of memory on the simulated device: where, with what exception, and what is left behind."""

import gc
import itertools
import pickle
import traceback
from collections.abc import Callable, Iterator

import pytest
import torch
from sim_workloads import KIB, MIB, train_mlp
from torch import nn

from watcherml.simulated.active import parse_bytes
from watcherml.simulated.device import simulated_device
from watcherml.simulated.error import SimulatedOutOfMemoryError


def _training(batch: int, width: int, eval_batch: int) -> Iterator[str]:
    """A training step cut into phases; yields the name of the phase that comes next."""
    yield "build"
    model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 64))
    optimizer = torch.optim.Adam(model.parameters())
    data = torch.randn(batch, 64)
    yield "forward"
    loss = model(data).square().mean()
    yield "backward"
    loss.backward()
    del loss
    yield "optimizer"
    optimizer.step()
    optimizer.zero_grad()
    yield "eval"
    with torch.inference_mode():
        model(torch.randn(eval_batch, 64))


def _lookup() -> Iterator[str]:
    yield "build"
    table = nn.Embedding(1000, 64)
    ids = torch.zeros(4096, dtype=torch.long)
    yield "embedding"
    table(ids)


PHASES: list[tuple[str, Callable[[], Iterator[str]], str]] = [
    ("forward", lambda: _training(2048, 64, 1), "aten.relu.default"),
    ("embedding", _lookup, "aten.embedding.default"),
    ("backward", lambda: _training(1, 1024, 1), "aten.mm.default"),
    ("optimizer", lambda: _training(1, 1024, 1), "aten.zeros_like.default"),
    ("eval", lambda: _training(8, 64, 4096), "aten.addmm.default"),
]


@pytest.mark.parametrize(("phase", "training", "op"), PHASES, ids=[case[0] for case in PHASES])
def test_memory_runs_out_in_the_phase_that_needs_more(phase: str, training, op: str) -> None:
    peaks: dict[str, int] = {}
    with simulated_device(None) as device:
        name = ""
        for following in training():
            peaks[name] = device.peak_bytes
            device.reset_peak()
            name = following
        peaks[name] = device.peak_bytes
    before = max(peak for name, peak in peaks.items() if list(peaks).index(name) < list(peaks).index(phase))
    assert before + 512 < peaks[phase], peaks
    budget = (before + peaks[phase]) // 2

    reached = []
    with simulated_device(budget) as device:
        with pytest.raises(torch.OutOfMemoryError) as caught:
            for name in training():
                reached.append(name)
    error = caught.value
    assert reached[-1] == phase
    assert type(error) is SimulatedOutOfMemoryError
    assert error.op == op
    assert error.budget_bytes == budget
    assert error.allocated_bytes <= budget < error.allocated_bytes + error.requested_bytes
    assert before - 4 * KIB <= device.peak_bytes <= budget


def test_the_text_has_the_label_first_and_then_the_grammar_of_cuda() -> None:
    with simulated_device("3 MiB") as device:
        kept = torch.zeros(MIB // 2)
        with pytest.raises(SimulatedOutOfMemoryError) as caught:
            kept.repeat(2).add(1)
        assert device.current_bytes == 2 * MIB
    assert str(caught.value) == (
        "[SIMULATED memory-budgeted CPU device (no GPU); op=aten.repeat.default] CUDA out of memory. "
        "Tried to allocate 4.00 MiB. GPU 0 has a total capacity of 3.00 MiB of which 1024.00 KiB is free. "
        f"Process {caught.value.pid} has 2.00 MiB memory in use. "
        "Of the allocated memory 2.00 MiB is allocated by PyTorch, "
        "and 0 bytes is reserved by PyTorch but unallocated."
    )


def test_training_code_catches_it_as_the_real_one() -> None:
    for kind in (torch.OutOfMemoryError, torch.cuda.OutOfMemoryError, RuntimeError):
        with simulated_device(512):
            try:
                torch.zeros(1000)
            except kind as error:
                assert error.simulated is True
            else:
                pytest.fail("must be refused")


def test_it_survives_pickling_with_text_and_numbers() -> None:
    error = SimulatedOutOfMemoryError(3 * MIB, 5 * MIB, 6 * MIB, "aten.mm.default", pid=42, grad_enabled=True)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is SimulatedOutOfMemoryError
    assert str(again) == str(error)
    assert vars(again) == vars(error)
    assert vars(again) == {
        "requested_bytes": 3 * MIB,
        "allocated_bytes": 5 * MIB,
        "budget_bytes": 6 * MIB,
        "op": "aten.mm.default",
        "pid": 42,
        "grad_enabled": True,
    }


def test_a_refusal_repeats_with_the_same_operator_and_the_same_request() -> None:
    refusals = []
    for _ in range(3):
        with simulated_device("400 KiB"):
            with pytest.raises(SimulatedOutOfMemoryError) as caught:
                train_mlp(batch=256)
        refusals.append((caught.value.op, caught.value.requested_bytes, caught.value.allocated_bytes))
    assert len(set(refusals)) == 1


def test_nothing_is_alive_after_an_oom_once_the_frames_are_cleared() -> None:
    gc.collect()
    gc.disable()
    try:
        with simulated_device("500 KiB") as device:
            base = torch.zeros(128)
            for phase_width in (256, 300):
                try:
                    train_mlp(batch=128, width=phase_width)
                    pytest.fail("must be refused")
                except torch.OutOfMemoryError as error:
                    assert device.current_bytes > 100 * KIB  # the frames of the traceback hold the model
                    traceback.clear_frames(error.__traceback__)
                assert device.current_bytes == 512
            assert train_mlp(batch=4, width=64)  # and training goes on in the same process
        del base
    finally:
        gc.enable()


@pytest.mark.parametrize("guard", [torch.enable_grad, torch.inference_mode])
def test_a_kept_exception_does_not_keep_the_refused_result(guard) -> None:
    with simulated_device("1 MiB") as device, guard():
        a, b = torch.ones(1000), torch.ones(1000)
        try:
            torch.kron(a, b)  # in inference mode its parts run inside it
        except torch.OutOfMemoryError as error:
            kept = error
        assert kept.requested_bytes > 3 * MIB
        large = [one for one in gc.get_objects() if type(one) is torch.Tensor and one.numel() == 1_000_000]
        assert large == []
        assert device.current_bytes == 2 * 4096


def test_a_kept_exception_does_not_keep_what_a_composite_operator_made_inside() -> None:
    with simulated_device(2 * MIB + 256 * KIB) as device, torch.inference_mode():
        query, mask = torch.randn(4, 4, 128, 32), torch.zeros(128)  # 256 KiB, 512 bytes
        try:
            nn.functional.scaled_dot_product_attention(query, query, query, mask, dropout_p=0.1)
        except torch.OutOfMemoryError as error:
            kept = error
        assert kept.op != "aten.scaled_dot_product_attention.default"
        assert kept.allocated_bytes > MIB  # the scores
        assert device.current_bytes == 256 * KIB + 512
    del query, mask


def test_a_refusal_takes_nothing_and_smaller_work_goes_on() -> None:
    with simulated_device("1 MiB") as device:
        kept = torch.zeros(128 * KIB)  # half of it
        for _ in range(3):
            with pytest.raises(SimulatedOutOfMemoryError) as caught:
                torch.zeros(129 * KIB)
            assert caught.value.allocated_bytes == device.current_bytes == 512 * KIB
        exactly = torch.zeros(128 * KIB)  # up to the last byte is allowed
        assert device.current_bytes == device.peak_bytes == parse_bytes("1 MiB")
    del kept, exactly


def test_a_host_tensor_that_does_not_fit_stays_on_the_host() -> None:
    with simulated_device("1 MiB") as device:
        with device.host():
            data = torch.zeros(MIB)
        with pytest.raises(SimulatedOutOfMemoryError) as caught:
            data[:10].sum()  # a view takes its whole base along
        assert caught.value.requested_bytes == 4 * MIB
        assert device.current_bytes == 0


def test_losses_kept_with_their_graph_grow_until_they_are_refused() -> None:
    with simulated_device("1 MiB") as device:
        model = nn.Linear(64, 64)
        losses, sizes = [], []
        with pytest.raises(SimulatedOutOfMemoryError):
            for _ in range(1000):
                losses.append(model(torch.randn(32, 64)).square().mean())
                sizes.append(device.current_bytes)
        steps = {after - before for before, after in itertools.pairwise(sizes[1:])}
        assert len(steps) == 1 and steps.pop() > 8 * KIB
        assert 20 < len(losses) < 200
