"""The peak is the true one: against hand sums, the allocator's own account, repeats, and prediction."""

import copy
import subprocess
import sys
from functools import partial

import pytest
import torch
from sim_workloads import native_peak_bytes, train_bf16, train_encoder, train_gpt, train_mlp
from torch import nn

from watcherml.simulated.device import simulated_device
from watcherml.simulated.prediction import predicted_device

# torch 2.4's own checkpointing uses what torch 2.4 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.cpu.amp.autocast:FutureWarning")

CASES = {
    "mlp": train_mlp,
    "mlp-wide": partial(train_mlp, batch=512),
    "bf16": train_bf16,
    "encoder": train_encoder,
    "gpt": train_gpt,
    "gpt-accumulated": partial(train_gpt, batch=4, accumulation=4),
    "gpt-checkpointed": partial(train_gpt, checkpointing=True),
}
each_case = pytest.mark.parametrize("work", CASES.values(), ids=CASES.keys())


def _peak_bytes(work) -> int:
    with simulated_device(None) as device:
        work()
    assert device.current_bytes == 0
    return device.peak_bytes


def test_the_peak_of_a_linear_layer_is_the_sum_done_by_hand() -> None:
    weights, bias, rows = 4 * 128 * 256, 4 * 256, 64
    data, output, scalar = 4 * rows * 128, 4 * rows * 256, 512
    with simulated_device(None) as device:
        layer = nn.Linear(128, 256)
        assert device.current_bytes == weights + bias
        x = torch.zeros(rows, 128)
        device.reset_peak()
        loss = layer(x).square().sum()
        # The graph keeps the layer's output for square; square's own result dies with the sum.
        assert device.current_bytes == weights + bias + data + output + scalar
        assert device.peak_bytes == weights + bias + data + 2 * output + scalar
        del x
        assert device.current_bytes == weights + bias + data + output + scalar  # kept for the weight's gradient
        loss.backward()
        assert device.current_bytes == 2 * (weights + bias) + scalar
        del loss
        optimizer = torch.optim.Adam(layer.parameters())
        optimizer.step()
        assert device.current_bytes == 4 * (weights + bias) + 2 * 512  # two moments, and a step count each
        optimizer.zero_grad()
        assert device.current_bytes == 3 * (weights + bias) + 2 * 512


@each_case
def test_the_peak_agrees_with_the_allocator(work) -> None:
    work()  # caches of the first run are not the training's memory
    native = native_peak_bytes(work)
    # At most the rounding of some dozens of small storages to 512 bytes each.
    assert native <= _peak_bytes(work) <= native * 1.01 + 64 * 512


def test_attention_in_inference_mode_agrees_with_the_allocator() -> None:
    def attend() -> None:
        query = torch.randn(4, 4, 128, 32)
        mask = torch.zeros(128, 128)
        nn.functional.scaled_dot_product_attention(query, query, query, attn_mask=mask, dropout_p=0.1)

    with torch.inference_mode():
        assert _peak_bytes(attend) == native_peak_bytes(attend)
    with torch.no_grad():
        assert _peak_bytes(attend) == native_peak_bytes(attend)


def test_an_operator_with_a_cpu_kernel_is_not_taken_apart_in_inference_mode() -> None:
    def work() -> None:
        torch.ops.aten.silu_backward(torch.ones(1024), torch.ones(1024))

    with torch.inference_mode():
        assert _peak_bytes(work) == native_peak_bytes(work) == 3 * 4096


@each_case
def test_the_peak_repeats_to_the_byte(work) -> None:
    assert _peak_bytes(work) == _peak_bytes(work)


@each_case
def test_the_loss_is_bitwise_the_same_with_and_without_the_device(work) -> None:
    without = work()
    with simulated_device("1 GiB"):
        assert work() == without


def test_inference_is_bitwise_the_same_with_and_without_the_device() -> None:
    def infer() -> torch.Tensor:
        torch.manual_seed(0)
        model = nn.MultiheadAttention(32, 4, dropout=0.5, batch_first=True)
        with torch.inference_mode():
            x = torch.randn(4, 16, 32)
            return model(x, x, x)[0]

    without = infer()
    with simulated_device(None):
        assert torch.equal(infer(), without)


def test_a_second_step_needs_the_optimizer_state_too() -> None:
    assert _peak_bytes(partial(train_gpt, batch=8, steps=1)) < _peak_bytes(partial(train_gpt, batch=8, steps=2))
    assert _peak_bytes(partial(train_gpt, batch=8, steps=2)) == _peak_bytes(partial(train_gpt, batch=8, steps=4))


def test_memory_falls_by_the_knobs_that_save_it_on_a_gpu() -> None:
    whole = _peak_bytes(partial(train_gpt, batch=32))
    micro = _peak_bytes(partial(train_gpt, batch=8, accumulation=4))
    checkpointed = _peak_bytes(partial(train_gpt, batch=32, checkpointing=True))
    assert micro < 0.5 * whole
    assert checkpointed < 0.6 * whole
    assert train_gpt(batch=8, accumulation=4) == pytest.approx(train_gpt(batch=32), abs=1e-5)
    assert train_gpt(batch=32, checkpointing=True) == train_gpt(batch=32)


@each_case
def test_the_predicted_peak_is_the_measured_peak(work) -> None:
    with predicted_device() as device:
        work()
    assert device.peak_bytes == _peak_bytes(work)
    assert device.current_bytes == 0
    assert device.report()["predicted"] is True


def test_a_predicted_failure_is_the_measured_failure() -> None:
    work = partial(train_gpt, batch=32)
    budget = _peak_bytes(work) * 2 // 3
    failures = []
    for enter in (predicted_device, simulated_device):
        with enter(budget):
            with pytest.raises(torch.OutOfMemoryError) as caught:
                work()
        failures.append((caught.value.op, caught.value.requested_bytes, caught.value.allocated_bytes))
    assert failures[0] == failures[1]


def test_prediction_needs_no_memory_for_the_data() -> None:
    with predicted_device() as device:
        tensor = torch.zeros(2**43) + 1  # 32 TiB
        assert device.peak_bytes == 2 * 2**45
    del tensor


def test_prediction_makes_up_values_but_never_shapes() -> None:
    with predicted_device():
        value = torch.randn(3).sum()
        assert value.item() == 0.0
        assert not value.isnan()
        assert torch.tensor(3.0).item() == 3.0  # what is known is not made up
        with pytest.raises(Exception, match="_local_scalar_dense"):
            int(torch.randn(3).argmax())
        with pytest.raises(Exception, match="nonzero"):
            torch.randn(3).nonzero()


def test_prediction_leaves_torch_as_it_was() -> None:
    before = torch.utils.swap_tensors
    with pytest.raises(KeyError):
        with predicted_device():
            nn.Linear(2, 2).to("cpu").double()
            raise KeyError("user code")
    assert torch.utils.swap_tensors is before
    assert "__deepcopy__" not in vars(torch._subclasses.fake_tensor.FakeTensor)
    assert torch.zeros(2).sum().item() == 0.0


def test_prediction_may_come_first_in_a_process() -> None:
    code = (
        "import torch\n"
        "from watcherml.simulated.prediction import predicted_device\n"
        "with predicted_device('1 MiB') as device:\n"
        "    torch.nn.Linear(64, 64).to('cpu')(torch.zeros(8, 64)).sum().backward()\n"
        "print(device.peak_bytes > 16640)"
    )
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout == "True\n"


OF_WHOLE_NUMBERS = {
    "copied": copy.deepcopy,
    "squeezed in place": lambda one: one.unsqueeze_(0).squeeze_(0),
    "turned in place": lambda one: one.t_(),
    "made larger in place": lambda one: one.resize_(8),
    "of a model with BatchNorm": lambda one: copy.deepcopy(nn.BatchNorm1d(3)).num_batches_tracked + one,
}


@pytest.mark.parametrize("change", OF_WHOLE_NUMBERS.values(), ids=OF_WHOLE_NUMBERS)
def test_a_whole_number_that_is_known_stays_known_in_a_prediction(change) -> None:
    with predicted_device() as device:
        found = change(torch.tensor([4, 2]))
        assert found.flatten()[0].item() == 4
    assert device.peak_bytes >= 512
