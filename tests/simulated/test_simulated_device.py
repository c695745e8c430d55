"""What the simulated device counts, what it leaves alone, and what it refuses."""

import collections
import gc
import os
import threading
import warnings

import pytest
import torch
from sim_workloads import KIB, MIB
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor

from watcherml.errors import DeviceError, InvalidValue
from watcherml.simulated import active
from watcherml.simulated import device as device_module
from watcherml.simulated.device import SimulatedDevice, simulated_device
from watcherml.simulated.ledger import Ledger


def test_the_active_device_is_known_while_active_and_remembered_afterwards() -> None:
    with simulated_device("1 MiB") as device:
        assert active.current() is device
        assert active.last() is device
    assert active.current() is None
    assert active.last() is device


def test_a_second_device_is_refused_also_from_another_thread() -> None:
    refusals = []

    def enter() -> None:
        try:
            with simulated_device(None):
                pass
        except DeviceError as error:
            refusals.append(str(error))

    with simulated_device("2 MiB") as outer:
        enter()
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        assert active.current() is outer
        kept = torch.zeros(KIB)
        assert outer.current_bytes == 4 * KIB
    del kept
    assert len(refusals) == 2
    assert all("one with a budget of 2.00 MiB" in text for text in refusals)
    with simulated_device(None):  # and the way is free again
        pass


def test_each_storage_counts_once_in_granules_of_512_bytes() -> None:
    with simulated_device(None) as device:
        tensor = torch.zeros(100)  # 400 bytes
        assert device.current_bytes == 512
        views = [tensor.view(10, 10), tensor[5:], tensor.t(), tensor.detach()]
        tensor.add_(1)
        assert device.current_bytes == 512
        wide = tensor.expand(1000, 100)
        assert device.current_bytes == 512
        empty = torch.empty(0)
        assert device.current_bytes == 512
        copy = tensor.double()  # 800 bytes
        assert device.current_bytes == 512 + 1024
        del tensor, wide
        assert device.current_bytes == 512 + 1024  # the views keep it
        del views
        assert device.current_bytes == 1024
    del copy, empty
    assert device.current_bytes == 0
    assert device.peak_bytes == 512 + 1024


def test_a_storage_that_grows_is_counted_anew() -> None:
    with simulated_device(None) as device:
        tensor = torch.zeros(128)
        tensor.resize_(1024)
        assert device.current_bytes == 4 * KIB
        torch.add(torch.ones(4096), 1, out=tensor.resize_(0))
        assert device.current_bytes == 16 * KIB


def test_current_bytes_keep_falling_after_the_context_without_the_collector() -> None:
    gc.disable()
    try:
        with simulated_device(None) as device:
            model = nn.Linear(64, 64)
            loss = model(torch.randn(32, 64)).sum()
        alive = device.current_bytes
        assert alive > 16 * KIB
        later = torch.zeros(10 * MIB)  # not counted any more
        assert device.current_bytes == alive
        del loss
        assert 0 < device.current_bytes < alive
        del model, later
        assert device.current_bytes == 0
    finally:
        gc.enable()


def test_reset_peak_starts_from_what_is_alive() -> None:
    with simulated_device(None) as device:
        kept = torch.zeros(MIB)
        torch.zeros(2 * MIB)
        assert device.peak_bytes == 12 * MIB
        device.reset_peak()
        assert device.peak_bytes == device.current_bytes == 4 * MIB
    del kept


def test_host_tensors_count_from_their_first_use_outside() -> None:
    with simulated_device(None) as device:
        with device.host():
            with device.host():
                data = torch.randn(1000, 64)
            batch = data[:8].clone()
            batch.mul_(2)
        assert device.current_bytes == 0
        result = batch + 1
        assert device.current_bytes == 2 * 8 * 64 * 4
    del result, batch, data


def test_host_ends_with_its_block_also_after_an_error() -> None:
    with simulated_device(None) as device:
        with pytest.raises(KeyError):
            with device.host():
                raise KeyError("user code")
        kept = torch.zeros(128)
        assert device.current_bytes == 512
    del kept


Pair = collections.namedtuple("Pair", "x y")


def test_batches_keep_the_data_set_on_the_host_and_copy_each_batch() -> None:
    with simulated_device("64 KiB") as device:
        with device.host():
            data = torch.randn(1000, 64)  # 250 KiB would not fit
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), batch_size=100, shuffle=True)
        seen = 0
        for (batch,) in device.batches(loader):
            batch.mul_(0)
            seen += len(batch)
            assert device.current_bytes in (25600, 51200)  # the name still holds the batch before
        assert seen == 1000
        del batch
        assert device.current_bytes == 0
        with device.host():
            assert data.abs().min() > 0  # the copies were changed, the data set was not


def test_a_batch_that_does_not_fit_is_refused() -> None:
    with simulated_device("4 KiB") as device:
        with device.host():
            loader = [torch.zeros(128), torch.zeros(2 * KIB)]
        with pytest.raises(torch.OutOfMemoryError, match="op=batches") as caught:
            for batch in device.batches(loader):
                assert device.current_bytes == batch.numel() * 4
        assert caught.value.requested_bytes == 8 * KIB
        del batch
        assert device.current_bytes == 0


def test_batches_of_a_list_are_let_go_one_by_one_and_keep_their_types() -> None:
    with simulated_device(None) as device:
        with device.host():
            rows = torch.ones(6, 128)
            loader = [
                rows[0],
                {"x": rows[1], "name": "one"},
                collections.UserDict(x=rows[2]),
                Pair(rows[3], 7),
                [rows[4], None],
                (rows[5],),
            ]
        kinds = []
        for batch in device.batches(loader):
            kinds.append(type(batch))
            assert device.current_bytes <= 2 * 512  # this batch, and the one before until the name is bound anew
        del batch
        assert device.current_bytes == 0
        assert kinds == [torch.Tensor, dict, collections.UserDict, Pair, list, tuple]
        assert loader[1]["x"].data_ptr() == rows[1].data_ptr()  # the loader's own batch is untouched


def test_adopt_counts_what_was_made_before() -> None:
    def build() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64))
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.randn(8, 64)).sum().backward()
        optimizer.step()
        return model, optimizer

    with simulated_device(None) as inside:
        made = build()
        wanted = inside.current_bytes
    del made
    model, optimizer = build()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    extra = torch.zeros(256)
    with simulated_device(None) as device:
        device.adopt(model, optimizer, {"more": [extra, (extra.view(2, 128), 3)], "none": None}, scheduler)
        assert device.current_bytes == wanted + KIB
        device.adopt(model)
        assert device.current_bytes == wanted + KIB


def test_adopt_refuses_what_it_cannot_look_into() -> None:
    with simulated_device(None) as device:
        with pytest.raises(InvalidValue) as caught:
            device.adopt([torch.zeros(1), {"loader": object()}])
        assert "adopt[0][1]['loader']: expected a module" in str(caught.value)
        assert "got object. Pass the tensors that it holds" in str(caught.value)


def test_adopt_over_the_budget_counts_nothing() -> None:
    small, large = torch.zeros(1024), torch.zeros(MIB)
    with simulated_device("1 MiB") as device:
        with pytest.raises(torch.OutOfMemoryError, match="op=adopt") as caught:
            device.adopt(small, large)
        assert caught.value.requested_bytes == 4 * MIB + 4 * KIB
        assert caught.value.allocated_bytes == device.current_bytes == 0
        device.adopt(small)
        assert device.current_bytes == 4 * KIB


@pytest.mark.parametrize("use", [lambda device: device.adopt(torch.zeros(1)), lambda device: device.batches([])])
def test_outside_its_context_a_device_takes_nothing_in(use) -> None:
    with simulated_device(None) as device:
        pass
    with pytest.raises(DeviceError, match="Call it inside `with simulated_device"):
        use(device)


def test_sparse_and_wrapped_tensors_count_by_their_parts() -> None:
    with simulated_device(None) as device:
        table = nn.Embedding(1000, 64, sparse=True)  # 256000 bytes
        table(torch.arange(10)).sum().backward()
        assert table.weight.grad.is_sparse
        assert device.current_bytes == 256_000 + 512 + 10 * 64 * 4  # indices, values
        del table
        assert device.current_bytes == 0
        pair = TwoTensor(torch.zeros(128), torch.zeros(128))
        assert device.current_bytes == 2 * 512
        device.reset_peak()
        result = (pair * 2).exp()
        assert device.current_bytes == 4 * 512
        assert device.peak_bytes == 6 * 512  # the product is alive while exp runs
        device.adopt(result)
        assert device.current_bytes == 4 * 512
    del pair, result
    with simulated_device(3 * 512):
        with pytest.raises(torch.OutOfMemoryError) as caught:
            TwoTensor(torch.zeros(128), torch.zeros(128)).mul(2)
        assert caught.value.requested_bytes == 512  # the operator on one part, not on the wrapper


def test_meta_tensors_cost_nothing_and_other_devices_are_refused() -> None:
    with simulated_device("1 MiB") as device:
        shape_only = torch.zeros(10**9, device="meta") + 1
        assert shape_only.shape == (10**9,)
        assert device.current_bytes == 0
    elsewhere = FakeTensor(FakeTensorMode(), torch.empty(2, device="meta"), torch.device("cuda:0"))
    with pytest.raises(DeviceError, match="got a tensor on cuda:0"):
        Ledger(None).charge(elsewhere)


def test_a_forked_child_passes_through_uncounted() -> None:
    with simulated_device("1 MiB") as device:
        kept = torch.zeros(128)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside torch's threads
            child = os.fork()
        if child == 0:
            try:
                torch.empty(4 * MIB)  # far over the budget
                fine = active.current() is None and active.last() is None and device.current_bytes == 512
                os._exit(0 if fine else 1)
            except BaseException:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert device.current_bytes == 512
    del kept


class _Rows(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        torch.zeros(MIB)  # a worker may use more than the budget
        return torch.full((128,), float(index))


def test_workers_of_a_data_loader_are_not_held_to_the_budget() -> None:
    with simulated_device("64 KiB") as device:
        loader = torch.utils.data.DataLoader(_Rows(), batch_size=2, num_workers=1, multiprocessing_context="fork")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            total = sum(batch.sum().item() for batch in device.batches(loader))
        assert total == 128 * (0 + 1 + 2 + 3)
        assert 0 < device.peak_bytes <= 4 * KIB


def test_a_counter_can_be_read_from_another_thread_which_is_not_counted() -> None:
    read = []
    with simulated_device("1 MiB"):
        kept = torch.zeros(128)
        thread = threading.Thread(target=lambda: read.extend([torch.zeros(MIB), active.current().current_bytes]))
        thread.start()
        thread.join()
        assert read[1] == 512
        with pytest.raises(torch.OutOfMemoryError):
            read[0].sum()  # the entering thread touches it, and so it counts
    del kept


def test_the_report_names_the_device_as_simulated_and_its_numbers_so() -> None:
    with simulated_device("2 MiB") as device:
        kept = torch.zeros(KIB)
        torch.zeros(2 * KIB)
        report = device.report()
    del kept
    assert report == {
        "kind": "simulated",
        "device_id": "simulated-cpu-budget",
        "simulated": True,
        "predicted": False,
        "budget_bytes": 2 * MIB,
        "sim_allocated_bytes": 4 * KIB,
        "sim_peak_bytes": 12 * KIB,
        "mechanism": "torch dispatch mode over tensor storages",
        "granularity_bytes": 512,
        "torch_version": str(torch.__version__),
        "threads": torch.get_num_threads(),
    }
    assert SimulatedDevice.kind == "simulated"


@pytest.mark.parametrize(
    ("part", "broken", "words"),
    [
        ("_forget", lambda self, held: None, "0 bytes counted after the last view died; got 4096 bytes"),
        ("charge", lambda self, *values: None, "4096 bytes counted for one new tensor; got 0 bytes"),
    ],
)
def test_a_torch_that_cannot_be_counted_is_refused_at_the_start(part: str, broken, words: str, monkeypatch) -> None:
    monkeypatch.setattr(device_module, "_counting_checked", False)
    monkeypatch.setattr(Ledger, part, broken)
    with pytest.raises(DeviceError) as caught:
        with simulated_device(None):
            raise AssertionError("must not start")
    assert words in str(caught.value)
    assert active.current() is None


@pytest.mark.parametrize("surrounding", [torch.inference_mode, torch.no_grad, FakeTensorMode])
def test_the_check_at_the_start_holds_in_every_mode(surrounding, monkeypatch) -> None:
    monkeypatch.setattr(device_module, "_counting_checked", False)
    with surrounding():
        with simulated_device(None):
            pass
