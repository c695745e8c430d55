"""What the report of a release says: bytes as they are afterwards, each once, and what no name leads to."""

import gc
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from watcherml.forensics.release import release_frames
from watcherml.simulated.device import simulated_device

TABLE = 2**21


def shell(**names):
    return SimpleNamespace(user_ns=names)


def failure(call):
    try:
        call()
    except RuntimeError as error:
        return error
    raise AssertionError("it did not fail")


def table():
    return np.zeros(TABLE // 8)


def test_a_generator_counts_with_what_it_holds_afterwards_and_not_twice():
    def stream():
        kept = table()
        try:
            step()
        except RuntimeError as error:
            yield error
        yield len(kept)

    def step():
        mine = table()
        raise RuntimeError(f"CUDA out of memory. {len(mine)}")

    going = stream()
    error = next(going)
    found = release_frames(error, shell(going=going))
    assert [(one.name, one.bytes) for one in found.kept] == [("going", TABLE)], "what step() held is gone"
    assert next(going) == TABLE // 8


def test_what_the_exception_itself_carries_is_named():
    def fail():
        error = RuntimeError("CUDA out of memory.", table())
        error.batch = table()
        raise error

    error = failure(fail)
    found = release_frames(error, shell())
    assert {one.name: one.bytes for one in found.kept} == {"RuntimeError.batch": TABLE, "RuntimeError.args[1]": TABLE}
    assert "RuntimeError.batch" in found.sentence and "%xdel" not in found.sentence
    gone = error.batch
    error.args, error.batch = (), None
    del gone
    assert release_frames(error, shell()).kept == ()


def test_an_exception_that_refuses_to_be_asked_is_released_all_the_same():
    class Refuses(RuntimeError):
        args = property(lambda self: 1 / 0)

    assert release_frames(failure(lambda: (_ for _ in ()).throw(Refuses("no"))), shell()).exceptions == 1


@pytest.fixture
def device():
    with simulated_device("64 MiB") as entered:
        yield entered
    gc.collect()


def test_what_an_autograd_graph_keeps_on_the_device_is_not_called_nothing(device):
    weight = torch.ones(2**20, requires_grad=True)
    losses = [(weight * 2).exp().sum() for _ in range(2)]  # exp() keeps its result for backward

    def fail():
        torch.zeros(2**25)

    found = release_frames(failure(fail), shell(losses=losses, weight=weight))
    assert "Of the simulated device's memory, at least 8.00 MiB is in no tensor that a name leads to." in found.sentence
    assert "An autograd graph is kept by losses, and with it what backward would need." in found.sentence


def test_what_nobody_can_be_seen_to_hold_is_said_without_blame(device):
    hidden = torch.ones(2**20)

    def fail():
        torch.zeros(2**25)

    found = release_frames(failure(fail), shell())
    assert "at least 4.00 MiB is in no tensor that a name leads to. Look at what libraries" in found.sentence
    assert len(hidden) == 2**20
    named = release_frames(failure(fail), shell(hidden=hidden))
    assert "no tensor that a name leads to" not in named.sentence


def test_workspaces_of_libraries_are_not_taken_for_a_mystery(monkeypatch):
    held = [2**25]
    cuda = SimpleNamespace(
        is_initialized=lambda: True, device_count=lambda: 1, memory_reserved=lambda index: 2**30,
        memory_allocated=lambda index: held[0], empty_cache=lambda: None,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))

    def fail():
        raise RuntimeError("CUDA out of memory.")

    assert "no tensor" not in release_frames(failure(fail), shell()).sentence
    held[0] = 2**28
    told = release_frames(failure(fail), shell()).sentence
    assert "Of the CUDA memory in use, at least 256.00 MiB is in no tensor that a name leads to." in told


def test_a_stack_that_went_before_is_not_said_to_be_kept():
    def step():
        raise RuntimeError("CUDA out of memory.")

    error = failure(step)
    release_frames(error, shell())
    again = release_frames(error, shell(), keep_stack=True)
    assert (again.frames_cleared, again.stack_kept) == (0, False) and "the stack is gone" in again.sentence
