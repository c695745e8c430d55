"""What is noted of the device's memory while training goes on: real steps, real loaders, and nothing left behind."""

import copy
import gc
import importlib
import io
import itertools
import traceback

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import watcherml
from watcherml.recorder import batches, device_memory, framework
from watcherml.recorder.device_memory import MemoryLog
from watcherml.recorder.thinned import Thinned
from watcherml.simulated import active
from watcherml.simulated.device import simulated_device
from watcherml.store import pages

optimizers = importlib.import_module("torch.optim.optimizer")


@pytest.fixture
def log():
    problems = []
    made = MemoryLog(problems.append)
    made.problems = problems
    yield made
    made.stop()


def train(model, optimizer, loader, accumulate=1):
    for at, (x, y) in enumerate(loader, 1):
        nn.functional.cross_entropy(model(x), y).backward()
        if at % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()


def data(rows, batch):
    return DataLoader(TensorDataset(torch.randn(rows, 8), torch.zeros(rows, dtype=torch.int64)), batch_size=batch)


def net():
    model = nn.Linear(8, 3)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def test_steps_bytes_and_batches_of_a_training(log):
    with simulated_device(None) as device:
        log.start()
        with device.host():
            loader = data(70, 16)
        train(*net(), device.batches(loader))
    assert log.step == 5 and log.after_steps.numbers == [1, 2, 3, 4, 5] and log.watches_steps
    assert all(value > 0 for value in log.after_steps.values)
    assert log.batches_of_last_loader() == [16 * 9] * 4 + [6 * 9]
    assert log.in_step_peak is not None and not log.problems


def test_two_optimizers_of_one_loop_are_one_step(log):
    log.start()
    (first, one), (second, two) = net(), net()
    for x, y in data(24, 8):
        for model, optimizer in ((first, one), (second, two)):
            train(model, optimizer, [(x, y)])
    assert log.step == 3


def test_batches_since_a_step_belong_to_the_loader_of_the_last_one(log):
    log.start()
    model, optimizer = net()
    with simulated_device(None):
        train(model, optimizer, data(32, 8))
        assert not log.other_loader
        kept = [model(x) for x, _ in data(30, 5)]
    assert log.other_loader and log.batches_since_step == 5 and len(kept) == 6
    assert len(log.after_batches.values) == 5 and log.after_batches.values == sorted(log.after_batches.values)
    assert log.batches_of_last_loader() == [45] * 6


def test_a_loader_on_the_simulated_device_is_heard_once(log):
    log.start()
    model, optimizer = net()
    with simulated_device(None) as device:
        with device.host():
            loader, other = data(32, 8), data(30, 5)
        train(model, optimizer, device.batches(loader))
        kept = [model(x) for x, _ in device.batches(other)]
    assert log.other_loader and log.batches_since_step == 5 and len(kept) == 6
    assert log.batches_of_last_loader() == [45] * 6 and len(log.batch_elements) == 10


def test_a_run_that_was_only_measured_is_listed_as_simulated_as_its_receipt_says(storage):
    with simulated_device(None), watcherml.Run("demo", {}, storage, quiet=True):
        torch.zeros(1000)
    (row,) = storage.list_runs()
    with storage.database.reading() as connection:
        (shown,) = pages.runs(connection, pages.Cut(5, 0)).rows
    assert row["device_kind"] == shown["device_kind"] == "simulated" and row["peak_device_bytes"] > 0


def test_what_the_device_held_before_the_run_counts_as_its_start(log):
    with simulated_device(None) as device:
        held = torch.zeros(1000)
        log.start()
        key = device_memory.simulated_key(device)
        assert log.at_start(key) == device.current_bytes > 4000 and held.numel() == 1000
    with simulated_device(None) as later:
        assert log.at_start(device_memory.simulated_key(later)) == 0


def test_an_earlier_refusal_is_remembered(log):
    with pytest.raises(RuntimeError), simulated_device("1 MiB"):
        torch.zeros(2**20)
    log.start()
    assert log.earlier_out_of_memory is True


def test_nothing_is_left_in_torch_after_the_run(storage):
    kind = torch.utils.data.dataloader._BaseDataLoaderIter
    hooks = importlib.import_module("torch.optim.optimizer")._global_optimizer_post_hooks
    before = kind.__next__, len(hooks), len(active.batch_listeners)
    with watcherml.Run("demo", {}, storage, quiet=True), watcherml.Run("demo", {}, storage, quiet=True):
        train(*net(), data(16, 8))
        assert kind.__next__ is not before[0]
        assert len(hooks) > before[1]
    assert (kind.__next__, len(hooks), len(active.batch_listeners)) == before


def test_models_and_optimizers_are_neither_changed_nor_kept_alive(log):
    log.start()
    model, optimizer = net()
    train(model, optimizer, data(16, 8))
    copy.deepcopy(model)
    torch.save(model, io.BytesIO())
    assert not model._forward_pre_hooks and not model._forward_hooks
    del model, optimizer
    gc.collect()
    assert log.optimizers() == []


def test_an_error_of_a_dataset_reaches_training_as_the_same_object(log):
    class Broken(TensorDataset):
        def __getitem__(self, index):
            raise error

    error = KeyError("no such sample")
    log.start()
    with pytest.raises(KeyError) as caught:
        list(DataLoader(Broken(torch.zeros(4))))
    assert caught.value is error
    ours = [one for one in traceback.extract_tb(caught.value.__traceback__) if one.filename == batches.__file__]
    assert len(ours) == 1  # what the documentation says


def test_an_error_of_our_own_ends_the_listening_and_not_the_training(log, monkeypatch):
    def broken(index):
        raise OSError("lost")

    log.start()
    monkeypatch.setattr(device_memory, "reading", broken)
    train(*net(), data(64, 8), accumulate=4)
    assert [type(one) for one in log.problems] == [OSError]
    assert log.step <= 1 and len(log.batch_elements) <= 2
    log.stop()
    assert not batches._wrapped


class Unhashable(torch.optim.SGD):
    __hash__ = None

    def __eq__(self, other):
        return self is other


def test_an_optimizer_without_a_hash_is_counted_as_any_other(log):
    log.start()
    model = nn.Linear(8, 3)
    optimizer = Unhashable(model.parameters(), lr=0.1)
    train(model, optimizer, data(32, 8))
    assert log.step == 4 and not log.problems and log.optimizers() == [optimizer]
    del optimizer
    gc.collect()
    assert log.optimizers() == []


@pytest.mark.parametrize("other", ["a hook of somebody else", "a second run"])
def test_giving_up_inside_a_step_takes_no_hook_out_of_the_list_that_torch_walks(log, monkeypatch, other):
    before = len(optimizers._global_optimizer_post_hooks)
    heard, second = [], MemoryLog(lambda error: None)
    log.start()
    if other == "a second run":
        second.start()
    handle = optimizers.register_optimizer_step_post_hook(lambda *_: heard.append(1))
    monkeypatch.setattr(log, "_note_retries", lambda _: 1 / 0)
    train(*net(), data(32, 8))
    handle.remove()
    assert len(heard) == 4 and [type(one) for one in log.problems] == [ZeroDivisionError]
    assert second.step == (4 if other == "a second run" else 0)
    second.stop()
    log.stop()
    assert len(optimizers._global_optimizer_post_hooks) == before


def test_a_run_that_ends_inside_a_global_hook_leaves_the_list_as_it_is_until_the_next_stop(log):
    before = len(optimizers._global_optimizer_post_hooks)
    log.start()
    second = MemoryLog(lambda error: None)
    handle = optimizers.register_optimizer_step_post_hook(lambda *_: log.stop())
    last = optimizers.register_optimizer_step_post_hook(lambda *_: None)
    train(*net(), data(32, 8))
    handle.remove()
    last.remove()
    assert log.step == 1 and not log.problems
    second.stop()
    assert len(optimizers._global_optimizer_post_hooks) == before


def test_an_expensive_reading_is_taken_less_often(log, monkeypatch):
    clock = itertools.count(step=0.001)
    monkeypatch.setattr(device_memory.time, "perf_counter", lambda: next(clock))
    log.start()
    with simulated_device(None):
        model, optimizer = net()
        x, y = torch.randn(4, 8), torch.zeros(4, dtype=torch.int64)
        for _ in range(400):
            train(model, optimizer, [(x, y)])
    taken = [number for number in log.after_steps.numbers if number > device_memory.ALWAYS]
    # By that clock a reading costs 1 ms and a step, which asks once, another.
    assert log.step == 400 and 2 <= len(taken) <= 8


@pytest.mark.parametrize("count", [1, 2, 511, 512, 513, 5_000, 70_000])
def test_a_thinned_series_is_bounded_even_and_keeps_the_first(count):
    series = Thinned(512)
    for number in range(1, count + 1):
        series.add(number, 10 * number)
    assert len(series.numbers) < 512 or count < 512
    assert series.numbers[0] == 1 and series.values == [10 * number for number in series.numbers]
    assert len({b - a for a, b in itertools.pairwise(series.numbers)}) <= 1
    assert count - series.numbers[-1] <= count // 256 + 1


def test_a_batch_of_any_shape_is_counted_and_none_is_an_error():
    x = torch.zeros(2, 3)
    for batch, count in [
        (x, 6), ([x, x], 12), ({"a": x, "b": [x, {"c": x}]}, 18), ((x, "text", None, 3), 6), ([], 0), (object(), 0),
        ([1.0] * 10_000, 0),
    ]:  # fmt: skip
        assert batches.elements_of(batch) == count


def test_without_a_device_the_counters_say_nothing():
    assert framework.allocated(0) is None and framework.retries() == {} and device_memory.readings() == []


@pytest.mark.parametrize("when", ["before a step", "after a step", "of one optimizer after its step"])
@pytest.mark.parametrize("others", [0, 2])
def test_a_run_that_starts_inside_a_hook_counts_from_the_next_step_on(log, when, others):
    before = (len(optimizers._global_optimizer_pre_hooks), len(optimizers._global_optimizer_post_hooks))
    model, optimizer = net()
    heard = []
    registers = {"before a step": optimizers.register_optimizer_step_pre_hook,
                 "after a step": optimizers.register_optimizer_step_post_hook,
                 "of one optimizer after its step": optimizer.register_step_post_hook}  # fmt: skip
    handles = [registers[when](lambda *_: log.start())]
    handles += [registers[when](lambda *_: heard.append(1)) for _ in range(others)]
    train(model, optimizer, data(40, 8))
    for handle in handles:
        handle.remove()
    assert len(heard) == 5 * others and not log.problems
    assert log.watches_steps and log.step == (5 if when == "before a step" else 4)
    log.stop()
    assert (len(optimizers._global_optimizer_pre_hooks), len(optimizers._global_optimizer_post_hooks)) == before
