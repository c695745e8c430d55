"""Before each trial on CUDA: is as much memory free as the failed run could use, and who holds the rest?"""

import importlib.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import DEVICE, FAILED_CONFIG, OOM_TEXT, planned, result, source

import watcherml
from watcherml.campaign.free_memory import CONTEXT_BYTES, Gpus, State, compare, context_bytes, look, usable_bytes
from watcherml.campaign.ledger import Ledger, Settings
from watcherml.campaign.prepare import source_of
from watcherml.campaign.run import CampaignRun
from watcherml.forensics.capsule import Capsule, MemoryFacts
from watcherml.platform import this_process
from watcherml.sealed.device import Device

GIB = 2**30
A100 = "NVIDIA A100"


@pytest.fixture
def capsule(storage):
    """The capsule of a failure whose text tells 3 MiB free beside 7.9 GiB in use, of which 7.2 GiB are torch's."""
    run = watcherml.Run("demo", FAILED_CONFIG, storage, quiet=True)
    with pytest.raises(RuntimeError), run:
        raise RuntimeError(OOM_TEXT)
    found = Capsule.from_json(storage.evidence.capsule(run.run_id)["document"])
    return found.replace(device=Device("cuda", A100, 8 * GIB))


@pytest.fixture
def gpus(monkeypatch):
    """GPUs as NVML tells of them; a list that a test fills."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return sys.modules["pynvml"].GPUS


def nvml():
    """A fresh stand-in for NVML's binding."""
    path = Path(__file__).parents[1] / "recorder" / "fake_pynvml.py"
    spec = importlib.util.spec_from_file_location("pynvml", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gpu(number, used, processes=()):
    return {"uuid": f"GPU-{number}", "bus": f"0:{number}", "total": 8 * GIB, "used": used, "processes": list(processes)}


def test_what_the_failed_run_could_use_and_what_its_context_took(capsule):
    memory = capsule.memory
    assert usable_bytes(memory) == memory.free_bytes + memory.process_in_use_bytes > 7.9 * GIB
    assert context_bytes(memory) == memory.process_in_use_bytes - memory.reserved_bytes > 0
    assert usable_bytes(MemoryFacts(free_bytes=1)) is None and usable_bytes(MemoryFacts()) is None
    assert usable_bytes(MemoryFacts(free_bytes=1, reserved_bytes=5)) == 6
    assert context_bytes(MemoryFacts()) == context_bytes(MemoryFacts(reserved_bytes=9)) == CONTEXT_BYTES


@pytest.mark.parametrize(("missing", "said"), [(-1, 0), (0, 0), (1, 1)])
def test_less_than_a_context_is_no_difference(capsule, missing, said):
    usable, context = usable_bytes(capsule.memory), context_bytes(capsule.memory)
    found = compare(capsule, [State("GPU-0", usable - context - missing)])
    assert found.missing_bytes == (context + missing if said else 0) and bool(found.sentence) == bool(said)


def test_what_cannot_be_compared_says_why(capsule):
    simulated = compare(capsule.replace(device=DEVICE), ())
    assert simulated.missing_bytes is None and "each process alone" in simulated.reason
    assert "not known" in compare(capsule.replace(device=Device("none")), ()).reason
    assert "does not say" in compare(capsule.replace(memory=MemoryFacts()), ()).reason
    assert "no driver" in compare(capsule, (), unknown="no driver").reason
    assert "could not be read" in compare(capsule, [State("GPU-0", None)]).reason
    assert "could not be read" in compare(capsule, [State("GPU-0", 5)], gpu="GPU-1").reason


def test_the_bytes_and_the_processes_are_named_and_the_kernels_is_offered_for_release(capsule, gpus):
    mine = this_process()
    gpus[:] = [gpu(0, 6 * GIB, [(os.getpid(), 5 * GIB), (999_999_999, GIB)]), gpu(1, 0)]
    found = look(capsule, source=mine)
    assert found.free_bytes == 2 * GIB and [one.held_bytes for one in found.holders] == [5 * GIB, GIB]
    assert f"process {os.getpid()}" in found.sentence and "holds 5,120 MiB" in found.sentence
    assert "process 999999999 holds 1,024 MiB" in found.sentence and "`%watcher free`" in found.sentence
    assert "free`" not in look(capsule).sentence  # nobody knows that the failed process still lives
    assert look(capsule, gpu="GPU-1").missing_bytes == 0
    assert sys.modules["pynvml"].state.open == 0  # NVML is given back


def test_the_gpu_of_the_failures_text_is_compared(capsule, gpus):
    gpus[:] = [gpu(0, 8 * GIB), gpu(1, 0)]
    text = capsule.failure.message.replace("GPU 0", "GPU 1")
    assert look(capsule).missing_bytes > 0
    assert look(capsule.replace(failure=capsule.failure.replace(message=text))).missing_bytes == 0
    assert [one.free_bytes for one in Gpus().states()] == [0, 8 * GIB]


def test_a_campaign_says_it_before_each_trial_and_runs_it_all_the_same(storage, capsule, gpus, monkeypatch):
    gpus[:] = [gpu(0, 4 * GIB, [(999_999_999, 4 * GIB)])]
    made = planned(source_of(storage.get_run(capsule.run_id), capsule), capsule.device)
    storage.audit.put_record(made.digest, made.KIND, made.to_json(), storage.clock())
    monkeypatch.setattr(type(storage.evidence), "capsule", lambda self, run_id: {"document": capsule.to_json()})
    ledger = Ledger.open_new(storage, "short-of-memory", made, (), {}, Settings(".", sys.executable))
    ran = []

    class Instant:
        def submit(self, request, launch):
            ran.append(request)

        def poll(self, trial_id):
            return result(ran[-1], "completed")

    verdict = CampaignRun(ledger, Instant(), sleep=lambda seconds: None).run()
    assert [one.role for one in ran] == ["control"] and verdict.status in ("stopped", "not_recovered")
    kinds = [(one["type"], one["body"]) for one in storage.audit.events("short-of-memory")]
    bodies = [body for kind, body in kinds if kind == "memory_taken"]
    assert [body["processes"][0]["pid"] for body in bodies] == [999_999_999]
    assert bodies[0]["missing_bytes"] > 3 * GIB and "4,096 MiB of device memory are free" in bodies[0]["sentence"]
    order = [kind for kind, _ in kinds]
    assert order.index("memory_taken") < order.index("trial_started")


def test_a_simulated_campaign_asks_nobody(gpus, storage):
    run = SimpleNamespace(plan=planned(source()), ledger=None)
    assert CampaignRun._compare_memory(run, None) is None
    assert not sys.modules["pynvml"].CALLS
