"""The sampler: process tree, GPUs of this process by UUID, and nothing that fails ever reaches training."""

import importlib
import inspect
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import watcherml
from watcherml.recorder import framework, machine, nvml
from watcherml.recorder.nvml import Nvml
from watcherml.recorder.processes import ProcessTree
from watcherml.recorder.sampler import Sampler

GIB = 2**30
SLICES = [
    {"uuid": "MIG-aaaa", "gi": 1, "ci": 0, "total": 10 * GIB, "used": 3 * GIB},
    {"uuid": "MIG-bbbb", "gi": 2, "ci": 0, "total": 20 * GIB, "used": 4 * GIB},
]


def gpus(count=4, **changes):
    """GPUs whose order in NVML is the reverse of that of their bus ids."""
    return [
        {
            "uuid": f"GPU-{number}{number}{number}{number}-00", "bus": f"0000:{number:02X}:00.0", "total": 80 * GIB,
            "used": (number + 1) * GIB, "driver": GIB // 2, "busy": 10 * number, **changes,
        }
        for number in reversed(range(count))
    ]  # fmt: skip


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """The fake library as ``pynvml``, with no GPU selected by the environment."""
    folder = tmp_path / "library"
    folder.mkdir()
    shutil.copy(Path(__file__).with_name("fake_pynvml.py"), folder / "pynvml.py")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    sys.modules.pop("pynvml", None)
    importlib.invalidate_caches()
    library = importlib.import_module("pynvml")
    library.GPUS[:] = gpus()
    yield library
    sys.modules.pop("pynvml", None)


def numbers(rows):
    """The GPUs' own numbers, by their index in this process."""
    assert [row["gpu_index"] for row in rows] == list(range(len(rows)))
    return [row["uuid"][4] if row["uuid"].startswith("GPU") else row["uuid"] for row in rows]


@pytest.mark.parametrize(
    ("selected", "found"),
    [
        (None, "0123"),
        ("0", "0"),
        ("2,0", "20"),
        (" 3 , 1 ", "31"),
        ("", ""),
        ("-1", ""),
        ("0,-1,2", "0"),
        ("1,9,2", "1"),
        ("NoDevFiles", ""),
        ("none", ""),
        ("1,1", ""),
        ("GPU-2222-00", "2"),
        ("GPU-22", "2"),
        ("GPU-3,GPU-1111-00", "31"),
        ("GPU-", ""),
        ("GPU-9", ""),
        ("0,GPU-0", ""),
        ("0,GPU-1", "01"),
        ("٣", ""),
    ],
)
def test_cuda_visible_devices_selects_by_place_and_by_uuid(fake, monkeypatch, selected, found):
    if selected is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", selected)
    assert "".join(numbers(Nvml().readings())) == found


def test_the_order_fastest_first_is_known_among_equals_only(fake, monkeypatch):
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert numbers(Nvml().readings()) == ["1"]
    fake.GPUS[0]["name"] = "NVIDIA T4"
    assert Nvml().readings() == []
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert numbers(Nvml().readings()) == ["1"]


def test_a_selection_that_changes_is_followed(fake, monkeypatch):
    reader = Nvml()
    assert len(reader.readings()) == 4
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert numbers(reader.readings()) == ["3"]


@pytest.mark.parametrize(
    ("selected", "found"),
    [
        ("MIG-bbbb", ["MIG-bbbb"]),
        ("MIG-GPU-0000-00/2/0", ["MIG-bbbb"]),
        ("MIG-GPU-0000-00/1/0", ["MIG-aaaa"]),
        ("MIG-GPU-0000-00/5/0", []),
        ("MIG-GPU-9999-00/1/0", []),
        ("MIG-nothing", []),
        ("MIG-bbbb,MIG-aaaa", ["MIG-bbbb"]),
        ("0", ["MIG-aaaa"]),
        ("1", ["1"]),
        (None, ["MIG-aaaa"]),
    ],
)
def test_mig_slices_are_selected_by_either_name_and_one_at_a_time(fake, monkeypatch, selected, found):
    fake.GPUS[-1]["slices"] = [dict(one) for one in SLICES]
    if selected is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", selected)
    rows = Nvml().readings()
    assert numbers(rows) == found
    for row in rows:
        if row["uuid"].startswith("MIG"):
            assert row["utilization_percent"] is None and row["total_bytes"] in (10 * GIB, 20 * GIB)


def test_a_reading_has_the_units_that_its_names_say(fake, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert Nvml().readings() == [
        {
            "gpu_index": 0, "uuid": "GPU-2222-00", "utilization_percent": 20.0, "used_bytes": 3 * GIB,
            "total_bytes": 80 * GIB, "own_bytes": None,
        }
    ]  # fmt: skip


def test_old_bindings_and_drivers_count_the_drivers_reservation_as_used(fake, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(fake, "OLD_BINDING", True)
    assert Nvml().readings()[0]["used_bytes"] == GIB + GIB // 2
    monkeypatch.delattr(fake, "nvmlMemory_v2")
    assert Nvml().readings()[0]["used_bytes"] == GIB + GIB // 2


MINE = os.getpid()


@pytest.mark.parametrize(
    ("processes", "reserved", "first_namespace", "own"),
    [
        ([], 0, True, None),
        ([(1, GIB)], 0, True, None),  # a host PID of somebody else: not found is not zero
        ([(MINE, GIB), (1, 5)], 0, True, GIB),
        ([(MINE, 0)], 0, True, 0),
        ([(MINE, None)], 0, True, None),  # WDDM, or no right to know
        ([(MINE, 2**64 - 1)], 0, True, None),
        ([(MINE, GIB), (MINE, GIB)], 0, True, 2 * GIB),
        ([(MINE, GIB), (MINE, None)], 0, True, None),
        ([(MINE, GIB)], 0, False, None),  # in a container the number may be a stranger's
        ([(MINE, GIB)], GIB // 2, False, GIB),  # ... unless it holds what torch holds
        ([(MINE, GIB)], 2 * GIB, False, None),
        ([(MINE, GIB)], 2 * GIB, True, None),
    ],
)
def test_own_memory_is_that_of_the_own_pid_or_unknown(fake, monkeypatch, processes, reserved, first_namespace, own):
    monkeypatch.setattr(framework, "reserved_bytes", lambda index: reserved)
    monkeypatch.setattr(nvml, "_in_first_namespace", lambda: first_namespace)
    fake.GPUS[-1]["processes"] = processes
    assert Nvml().readings()[0]["own_bytes"] == own


FUNCTIONS = [name for name in vars(__import__("fake_pynvml")) if name.startswith("nvml") and name != "nvmlMemory_v2"]


@pytest.mark.parametrize("name", [*FUNCTIONS, "nvmlDeviceGetMemoryInfo_v2", "*"])
def test_a_failing_nvml_call_is_a_missing_reading(fake, monkeypatch, storage, name):
    fake.GPUS[-1]["slices"] = [dict(one) for one in SLICES]
    fake.FAILS.add(name)
    for selected in (None, "0", "1", "GPU-1", "MIG-aaaa", "MIG-GPU-0000-00/2/0"):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if selected is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", selected)
        reader = Nvml()
        rows = reader.readings()
        assert all(row["uuid"] for row in rows)
        assert reader.facts()["status"] in ("available", "unavailable")
        reader.close()
    with watcherml.Run("demo", {}, storage, quiet=True) as run:
        pass
    assert not run.problems and storage.runs.samples(run.run_id)


def test_functions_that_a_binding_lacks_are_missing_readings(fake, monkeypatch):
    for name in FUNCTIONS:
        if name not in ("nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID"):
            monkeypatch.delattr(fake, name)
    rows = Nvml().readings()
    assert len(rows) == 4 and {row["used_bytes"] for row in rows} == {None}


def test_without_the_library_or_the_driver_the_reason_is_known(fake, monkeypatch):
    fake.FAILS.add("nvmlInit")
    assert "NVML does not start" in Nvml().facts()["reason"]
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py" in machine.collect()["nvml"]["reason"]
    reader = Nvml()
    assert reader.readings() == [] and "pip install" in reader.reason


def test_nvml_is_given_back(fake, storage):
    with watcherml.Run("demo", {}, storage, quiet=True):
        pass
    assert fake.state.open == 0 and fake.CALLS["nvmlInit"] >= 1


def test_gpu_samples_lie_in_the_store_beside_the_samples(fake, storage, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    with watcherml.Run("demo", {}, storage, quiet=True) as run:
        pass
    rows = storage.runs.gpu_samples(run.run_id)
    times = [row["at"] for row in storage.runs.samples(run.run_id)]
    assert len(rows) == 2 * len(times) and sorted({row["at"] for row in rows}) == times
    assert [(row["gpu_index"], row["uuid"]) for row in rows[:2]] == [(0, "GPU-3333-00"), (1, "GPU-1111-00")]
    assert storage.get_run(run.run_id)["facts"]["machine"]["nvml"]["driver"] == "550.54.15"
    assert [one["uuid"] for one in storage.get_run(run.run_id)["facts"]["machine"]["nvml"]["gpus"]] == [
        "GPU-3333-00", "GPU-1111-00",
    ]  # fmt: skip


class Cuda:
    """What this package asks of ``torch.cuda``; creating a context is not among it."""

    def __init__(self, held, uuids):
        self.held, self.uuids, self.ready = held, uuids, True

    def is_initialized(self):
        return self.ready

    def device_count(self):
        return len(self.held)

    def current_device(self):
        return 0

    def memory_reserved(self, index):
        return self.held[index]

    def memory_allocated(self, index):
        return self.held[index] - 1

    def max_memory_reserved(self, index):
        return self.held[index]

    def get_device_properties(self, index):
        return SimpleNamespace(uuid=self.uuids[index], name="A100", total_memory=80 * GIB)


def test_where_cuda_is_in_use_torch_says_which_gpus(fake, monkeypatch):
    cuda = Cuda([5, 9], ["3333-00", "0000-00"])
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    fake.GPUS[0]["name"] = "NVIDIA T4"
    assert numbers(Nvml().readings()) == ["3", "0"]
    assert framework.device_sample() == {
        "device_kind": "cuda", "device_allocated_bytes": 8, "device_reserved_bytes": 9,
    }  # fmt: skip
    cuda.uuids = ["", ""]  # torch before 2.4
    assert framework.cuda_uuids() == [] and len(Nvml().readings()) == 4
    cuda.ready = False
    assert framework.device_sample()["device_kind"] == "none" and framework.peaks() == {}


def test_torch_counters_are_read_without_a_context():
    torch = pytest.importorskip("torch")
    framework.device_sample(), framework.peaks(), framework.cuda_uuids(), framework.reserved_bytes(0)
    Nvml().readings()
    assert not torch.cuda.is_initialized()
    source = inspect.getsource(framework)
    assert "mem_get_info" not in source and "is_available" not in source


# -- process tree -----------------------------------------------------------------------------------------------

BURN = "import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: pass\n"


def test_children_count_in_the_tree_and_not_in_the_process():
    tree = ProcessTree()
    before = tree.read()  # this process may have other children by now
    alive = subprocess.Popen(
        [sys.executable, "-c", "data = bytearray(80_000_000); print(flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    alive.stdout.readline()
    found = tree.read()
    with_it = found["tree_rss_bytes"] - found["rss_bytes"]
    assert with_it - (before["tree_rss_bytes"] - before["rss_bytes"]) > 70_000_000
    alive.communicate(b"\n")
    found = tree.read()
    assert with_it - (found["tree_rss_bytes"] - found["rss_bytes"]) > 70_000_000


def test_the_time_of_children_that_came_and_went_is_not_lost():
    tree = ProcessTree()
    begin = time.monotonic()
    subprocess.run([sys.executable, "-c", BURN.format(seconds=0.5)], check=True)
    found = tree.read()
    spent = found["tree_cpu_percent"] / 100 * (time.monotonic() - begin)
    assert 0.45 < spent < 2.0 and found["cpu_percent"] < found["tree_cpu_percent"]


def test_a_child_that_nobody_collects_never_makes_a_negative_share():
    tree = ProcessTree()
    code = "import os, time\nif os.fork() == 0:\n    os.setsid()\n" + "".join(
        f"    {line}\n" for line in BURN.format(seconds=0.2).splitlines()
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    for _ in range(5):
        assert tree.read()["tree_cpu_percent"] >= 0
        time.sleep(0.1)


# -- the thread -------------------------------------------------------------------------------------------------


def samplers():
    return [one for one in threading.enumerate() if one.name == "watcherml-sampler"]


def test_the_thread_stops_with_the_run(storage):
    before = len(samplers())
    run = watcherml.Run("demo", {}, storage, quiet=True).start()
    assert len(samplers()) == before + 1
    run.finish()
    assert len(samplers()) == before
    count = len(storage.runs.samples(run.run_id))
    time.sleep(0.1)
    assert len(storage.runs.samples(run.run_id)) == count >= 1


def test_the_first_sample_comes_at_once_and_the_last_at_the_end(storage):
    run = watcherml.Run("demo", {}, storage, quiet=True).start()
    while not storage.runs.samples(run.run_id):
        time.sleep(0.01)
    run.finish()
    first, *_, last = storage.runs.samples(run.run_id)
    row = storage.get_run(run.run_id)
    assert first["at"] - row["started_at"] < 2 and row["ended_at"] - last["at"] < 2
    assert last["rss_bytes"] > 1_000_000 and last["tree_rss_bytes"] >= last["rss_bytes"] and last["cpu_percent"] >= 0


def test_whatever_cannot_be_read_is_missing_and_the_heart_beats_on(monkeypatch):
    def refuse(*_, **__):
        raise PermissionError("hidden")

    monkeypatch.setattr("watcherml.recorder.sampler.ProcessTree", refuse)
    monkeypatch.setattr("watcherml.recorder.sampler.psutil.virtual_memory", refuse)
    seen, failed = [], []
    sampler = Sampler(lambda sample, gpus: seen.append((sample, gpus)), failed.append, time.time, 0.01)
    sampler.start()
    while len(seen) < 3:
        time.sleep(0.01)
    sampler.stop()
    assert not failed and seen[0][0]["host_used_bytes"] is None and "rss_bytes" not in seen[0][0]


def test_expensive_readings_come_less_often(monkeypatch):
    def burn():
        end = time.thread_time() + 0.01
        while time.thread_time() < end:
            pass
        return []

    seen = []
    sampler = Sampler(lambda sample, gpus: seen.append(time.monotonic()), print, time.time, 0.01)
    monkeypatch.setattr(sampler._nvml, "readings", burn)
    sampler.start()
    time.sleep(1.0)
    sampler.stop()
    assert len(seen) == 1  # 10 ms of work are half a per cent of two seconds


def test_a_forked_child_has_no_sampler_and_does_not_wait_for_one():
    sampler = Sampler(lambda sample, gpus: None, print, time.time, 0.01)
    sampler.start()
    read, write = os.pipe()
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        begin = time.monotonic()
        sampler.stop()
        os.write(write, b"%d %d" % (len(samplers()), time.monotonic() - begin > 1))
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 10) == b"0 0"
    os.close(read), os.close(write)
    assert sampler._thread.is_alive()
    sampler.stop()
