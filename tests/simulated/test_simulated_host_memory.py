"""What a data loader holds is host memory, as beside a GPU: only the batches that training uses are the device's."""

from __future__ import annotations

import multiprocessing
import threading

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import watcherml
from watcherml.simulated import active
from watcherml.simulated.device import simulated_device

BATCH_BYTES = 100 * 64 * 4  # 25 KiB
DATA_BYTES = 10 * BATCH_BYTES
BUDGET = "80 KiB"


class Made(Dataset):
    """Makes each of its rows when it is asked for it, by several operators."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> torch.Tensor:
        return (torch.full((64, 64), float(index)) @ torch.eye(64)).mean(dim=0)


class Streamed(IterableDataset):
    def __iter__(self):
        return iter(torch.ones(1000, 64))


def train(loader: DataLoader) -> tuple[int, list[int]]:
    rows, held = 0, []
    for batch in loader:
        batch = batch[0] if isinstance(batch, list) else batch
        rows += len(batch * 1.0)
        held.append(current())
    return rows, held


def current() -> int:
    device = active.current()
    assert device is not None
    return device.current_bytes


@pytest.mark.parametrize(
    "make",
    [
        lambda: DataLoader(TensorDataset(torch.ones(1000, 64)), batch_size=100, shuffle=True),
        lambda: DataLoader(Made(), batch_size=100),
        lambda: DataLoader(Streamed(), batch_size=100),
        lambda: DataLoader(TensorDataset(torch.ones(1000, 64)), batch_size=100, num_workers=1),
    ],
    ids=["shuffled tensors", "rows made on demand", "streamed", "a worker process"],
)
def test_a_loader_with_more_data_than_the_budget_trains(make) -> None:
    with simulated_device(BUDGET) as device:
        with watcherml.host_memory():
            loader = make()
        rows, held = train(loader)
    assert rows == 1000
    assert max(held) <= 2 * BATCH_BYTES + 512  # the batch, and the one before until its name is bound anew
    assert device.peak_bytes < DATA_BYTES


def test_batches_of_workers_that_wait_for_their_turn_stay_on_the_host() -> None:
    ahead = multiprocessing.get_context("fork").Event()

    class FirstIsLast(Dataset):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> torch.Tensor:
            if index == 0:
                ahead.wait(60)
            if index == 7:  # the other worker is done with all of its own before
                ahead.set()
            return torch.ones(64, 64)

    with simulated_device("20 KiB") as device:
        loader = DataLoader(
            FirstIsLast(), batch_size=None, num_workers=2, prefetch_factor=4, multiprocessing_context="fork"
        )
        batches = iter(loader)
        first = next(batches)
        assert device.current_bytes == 0
        first.add_(1.0)
        assert device.current_bytes == 64 * 64 * 4
        assert len(list(batches)) == 7


def test_data_from_before_the_device_stays_on_the_host() -> None:
    loader = DataLoader(TensorDataset(torch.ones(1000, 64)), batch_size=100)
    with simulated_device(BUDGET):
        assert train(loader)[0] == 1000


def test_data_that_is_made_on_the_device_counts() -> None:
    with pytest.raises(torch.OutOfMemoryError), simulated_device(BUDGET):
        TensorDataset(torch.ones(1000, 64))


def test_a_batch_counts_when_training_uses_it_and_is_refused_there() -> None:
    loader = DataLoader(TensorDataset(torch.ones(1000, 64)), batch_size=500)
    with simulated_device(BUDGET) as device:
        batches = iter(loader)
        (batch,) = next(batches)
        assert device.current_bytes == 0
        with pytest.raises(torch.OutOfMemoryError, match=r"op=aten\.mul"):
            batch * 2.0


def test_the_error_of_a_data_set_comes_through_and_the_device_counts_on() -> None:
    class Broken(Made):
        def __getitem__(self, index: int) -> torch.Tensor:
            raise LookupError(index)

    with simulated_device(BUDGET) as device:
        with pytest.raises(LookupError):
            next(iter(DataLoader(Broken())))
        kept = torch.ones(128)
        assert device.current_bytes == kept.nbytes


def test_another_thread_on_the_host_does_not_stop_the_counting_of_training() -> None:
    inside, done = threading.Event(), threading.Event()

    def load() -> None:
        with watcherml.host_memory(), device.host():
            next(iter(DataLoader(Made(), batch_size=2)))
            inside.set()
            done.wait(60)

    with simulated_device(BUDGET) as device:
        thread = threading.Thread(target=load)
        thread.start()
        assert inside.wait(60)
        kept = torch.ones(128)
        counted = device.current_bytes
        done.set()
        thread.join()
    assert counted == kept.nbytes


def test_without_a_simulated_device_host_memory_does_nothing() -> None:
    with watcherml.host_memory() as nothing:
        assert nothing is None
        kept = torch.ones(8)
    with simulated_device(BUDGET) as device:
        kept + 1
        assert device.current_bytes == 512


@pytest.mark.parametrize("name", ["__init__", "_next_data"])
@pytest.mark.parametrize("workers", ["SingleProcess", "MultiProcessing"])
def test_a_device_leaves_torchs_loader_as_it_found_it(workers, name) -> None:
    kind = getattr(torch.utils.data.dataloader, f"_{workers}DataLoaderIter")
    before = getattr(kind, name)
    with simulated_device(None):
        assert getattr(kind, name) is not before
    assert getattr(kind, name) is before
