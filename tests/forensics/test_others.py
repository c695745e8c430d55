"""What a failure has to do with others: sibling ranks, dead children, the same run without checkpointing."""

import multiprocessing
import multiprocessing.connection
import os
import signal
import subprocess
import sys

import pytest
import stand_in_cuda as cuda
import torch
from stand_in_cuda import GIB, Card
from torch import nn
from torch.utils.checkpoint import checkpoint

import watcherml
from watcherml.forensics import measured, others
from watcherml.forensics.capsule import Capsule
from watcherml.recorder import host_memory

OOM = getattr(torch, "OutOfMemoryError", RuntimeError)


@pytest.fixture
def vectors(monkeypatch):
    """The vectors that capture measured, in order."""
    found = []
    whole = measured.Measured

    def keeping(vector, *rest):
        found.append(vector)
        return whole(vector, *rest)

    monkeypatch.setattr(measured, "Measured", keeping)
    return found


@pytest.fixture
def sibling():
    """A process that this one's parent would have started beside it, as far as its family goes."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate()


@pytest.fixture
def fail_as_rank(storage, monkeypatch, tmp_path, vectors):
    """Fail as rank 0 of two on a card where other ranks and strangers hold what is said."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")

    def failing(siblings, foreign=0, failed_too=(), own=True, world=2):
        monkeypatch.setenv("WORLD_SIZE", str(world))
        card = Card(allocated=8 * GIB, reserved=8 * GIB)
        library = cuda.install(card, monkeypatch, tmp_path / "library")
        run = watcherml.Run("demo", {"batch_size": 8}, storage, quiet=True)
        with pytest.raises(OOM), run:
            card.set(siblings=siblings, foreign=foreign)
            cuda.tell_nvml(card, library, own=own)
            card.ooms += 1
            for rank in failed_too:
                storage.runs.note(run.run_id, {f"rank {rank}": {"error": "OutOfMemoryError"}})
            with watcherml.phase("forward"):
                raise OOM(card.message(2 * GIB))
        assert not run.problems, run.problems
        capsule = Capsule.from_json(storage.evidence.capsule(run.run_id)["document"])
        return vectors[-1], capsule.diagnosis

    return failing


def test_another_rank_on_this_ranks_device_is_named_and_is_no_stranger(fail_as_rank, sibling):
    vector, diagnosis = fail_as_rank({sibling: 6 * GIB})
    assert (vector.sibling_bytes, vector.foreign, vector.ranks_failed) == (6 * GIB, 0, 1)
    assert [one.id for one in diagnosis.sufficient] == ["C24"], diagnosis.to_data()


def test_a_stranger_beside_the_rank_is_told_from_it(fail_as_rank, sibling):
    vector, _ = fail_as_rank({sibling: 1 * GIB}, foreign=5 * GIB)
    assert (vector.sibling_bytes, vector.foreign) == (1 * GIB, 5 * GIB)


def test_where_every_rank_failed_none_is_alone(fail_as_rank, sibling):
    vector, diagnosis = fail_as_rank({sibling: 6 * GIB}, failed_too=(1,))
    assert vector.ranks_failed == 2 and "C24" not in [one.id for one in diagnosis.sufficient]
    vector, _ = fail_as_rank({sibling: 6 * GIB}, failed_too=(1, 2), world=4)
    assert vector.ranks_failed == 3


def test_without_siblings_here_nobody_waits_for_their_failures(fail_as_rank, monkeypatch):
    monkeypatch.setattr(others, "ranks_failed", lambda *_: 1 / 0)
    vector, diagnosis = fail_as_rank({}, foreign=6 * GIB)
    assert (vector.sibling_bytes, vector.ranks_failed) == (0, None)
    assert "C24" in [one.id for one in diagnosis.excluded]


def test_ids_of_another_namespace_name_no_sibling(fail_as_rank, sibling):
    vector, diagnosis = fail_as_rank({sibling: 6 * GIB}, own=False)
    assert vector.sibling_bytes is None and vector.ranks_failed is None
    assert "C24" in [one.id for one in diagnosis.unknown]


# -- children ------------------------------------------------------------------------------------------------------


def dies():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def dead_child():
    """A process of multiprocessing that was killed, and that nobody has joined."""
    child = multiprocessing.get_context("fork").Process(target=dies)
    child.start()
    multiprocessing.connection.wait([child.sentinel], 30)
    yield child
    child.join()


@pytest.mark.parametrize(("kills", "where"), [(None, "unknown"), (0, "excluded"), (1, "sufficient")])
def test_a_child_that_was_killed_is_seen_with_its_signal(storage, vectors, monkeypatch, dead_child, kills, where):
    counts = iter([5] + [None if kills is None else 5 + kills] * 9)
    monkeypatch.setattr(host_memory, "oom_kills", lambda *_: next(counts))
    run = watcherml.Run("demo", {}, storage, quiet=True)
    with pytest.raises(OOM), run:
        raise OOM("CUDA out of memory. Tried to allocate 2.00 GiB.")
    assert (vectors[-1].exit_signal, vectors[-1].host_kills) == ("SIGKILL", kills)
    diagnosis = Capsule.from_json(storage.evidence.capsule(run.run_id)["document"]).diagnosis
    assert "C0" in [one.id for one in getattr(diagnosis, where)], diagnosis.to_data()
    dead_child.join()
    assert others.exit_signal([]) == ""


class Loud(RuntimeError):
    def __str__(self):
        raise SystemExit


def test_words_of_an_exception_that_cannot_be_had_are_no_signal():
    words = "DataLoader worker (pid 7) is killed by signal: {}. Details."
    said = {"Killed": "SIGKILL", "Bus error": "SIGBUS", "Segmentation fault": "SIGSEGV", "Unheard of": ""}
    assert {name: others.exit_signal([RuntimeError(words.format(name))]) for name in said} == said
    assert others.exit_signal([Loud(), RuntimeError(words.format("Killed"))]) == "SIGKILL"


# -- checkpointing -------------------------------------------------------------------------------------------------


class Net(nn.Module):
    """One block, so that checkpointing it keeps nothing and saves nothing."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.ReLU())))

    def forward(self, x, checkpointed):
        return checkpoint(self.body, x, use_reentrant=False) if checkpointed else self.body(x)


def train(storage, budget, checkpointed, project="demo", **changes):
    config = {"batch_size": 512, "model": {"width": 64, "gradient_checkpointing": checkpointed}, **changes}
    run = watcherml.Run(project, config, storage, quiet=True)
    with run, watcherml.simulated_device(budget):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(2):
            model(torch.randn(512, 64, requires_grad=True), checkpointed).sum().backward()
            optimizer.step()
    return run.run_id


def test_the_same_run_without_checkpointing_tells_that_it_saves_nothing(storage, vectors):
    run = train(storage, "4 MiB", False)
    peak = storage.get_run(run)["receipt"]["peak_device_bytes"]
    train(storage, "4 MiB", False, batch_size=256)  # another configuration
    train(storage, "4 MiB", False, project="other")
    with pytest.raises(RuntimeError):
        train(storage, peak - 1024, True)
    assert vectors[-1].peak_without_checkpointing == peak
    failed = storage.list_runs(status="failed")[0]["run_id"]
    diagnosis = Capsule.from_json(storage.evidence.capsule(failed)["document"]).diagnosis
    named = diagnosis.sufficient + diagnosis.contributing
    assert "C20" in [one.id for one in named], diagnosis.to_data()
    sentence = next(one.sentence for one in named if one.id == "C20")
    assert "checkpointing is on, yet the peak" in sentence.lower()


def test_a_peak_that_was_only_sampled_is_none(storage, vectors):
    run = train(storage, "4 MiB", False)
    receipt = storage.get_run(run)["receipt"]
    storage.runs.add_receipt(run, {**receipt, "peak_source": "samples, at least"})
    with pytest.raises(RuntimeError):
        train(storage, receipt["peak_device_bytes"] - 1024, True)
    assert vectors[-1].peak_without_checkpointing is None
