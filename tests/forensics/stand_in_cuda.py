"""What torch.cuda, its allocator and NVML would say, as plain numbers that stand in for their functions."""

import importlib
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import torch

from watcherml.simulated.active import format_bytes

MIB, GIB = 2**20, 2**30
UUID = "GPU-0000-00"


class Card:
    """One device of 15 GiB: what torch holds, what others hold, and how it lies. All bytes."""

    def __init__(self, **changes):
        self.total = 15 * GIB
        self.allocated = self.reserved = self.active = 0
        self.own_other, self.foreign = 400 * MIB, 0
        self.siblings = {}  # bytes by process id
        self.segments, self.settings, self.traces = [], {"expandable_segments": False}, [[]]
        self.retries = self.ooms = 0
        self.fraction, self.backend = 1.0, "native"
        self.blocks = 100
        self.set(**changes)

    def set(self, **changes):
        for name, value in changes.items():
            assert hasattr(self, name), name
            setattr(self, name, value)
        self.active = max(self.active, self.allocated)

    @property
    def free(self):
        return self.total - self.reserved - self.own_other - self.foreign - sum(self.siblings.values())

    def stats(self, index=0):
        return {
            "allocated_bytes.all.current": self.allocated, "allocated_bytes.all.peak": self.allocated,
            "reserved_bytes.all.current": self.reserved, "reserved_bytes.all.peak": self.reserved,
            "active_bytes.all.current": self.active, "num_alloc_retries": self.retries, "num_ooms": self.ooms,
            "allocation.all.current": self.blocks,
        }  # fmt: skip

    def snapshot(self):
        return {"segments": self.segments, "device_traces": self.traces, "allocator_settings": self.settings}

    def message(self, requested):
        """The text of torch 2.2 and later for a request that does not fit."""
        held, unused = format_bytes(self.allocated), format_bytes(self.reserved - self.allocated)
        return (
            f"CUDA out of memory. Tried to allocate {format_bytes(requested)}. GPU 0 has a total capacity of"
            f" {format_bytes(self.total)} of which {format_bytes(self.free)} is free. Including non-PyTorch memory,"
            f" this process has {format_bytes(self.reserved + self.own_other)} memory in use. Of the allocated memory"
            f" {held} is allocated by PyTorch, and {unused} is reserved by PyTorch but unallocated."
        )


def segment(size, *blocks, pool=(0, 0), kind="large"):
    """A segment with blocks of (bytes, state, function that allocated it)."""
    rows = [
        {"size": count, "state": state, "frames": [{"filename": "/home/x/train.py", "line": 7, "name": name}]}
        for count, state, name in blocks
    ]
    return {"device": 0, "total_size": size, "segment_type": kind, "segment_pool_id": pool, "blocks": rows}


def install(card, monkeypatch, folder):
    """Let torch.cuda and NVML speak of the card; returns the NVML stand-in."""
    properties = SimpleNamespace(name="NVIDIA A100", total_memory=card.total, uuid=UUID)
    answers = {
        "is_initialized": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0,
        "get_device_properties": lambda index: properties, "get_device_capability": lambda *_: (8, 0),
        "memory_stats": card.stats, "memory_reserved": lambda *_: card.reserved,
        "memory_allocated": lambda *_: card.allocated, "max_memory_reserved": lambda *_: card.reserved,
        "max_memory_allocated": lambda *_: card.allocated, "mem_get_info": lambda *_: (card.free, card.total),
        "get_allocator_backend": lambda: card.backend, "empty_cache": lambda: None,
        "get_per_process_memory_fraction": lambda *_: card.fraction,
    }  # fmt: skip
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer, raising=False)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", card.snapshot)
    folder.mkdir(exist_ok=True)
    shutil.copy(Path(__file__).parents[1] / "recorder" / "fake_pynvml.py", folder / "pynvml.py")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    importlib.invalidate_caches()
    library = importlib.import_module("pynvml")
    del sys.modules["pynvml"]  # else what is put back after the test is this one, and every later run samples it
    monkeypatch.setitem(sys.modules, "pynvml", library)
    tell_nvml(card, library)
    return library


def tell_nvml(card, library, *, own=True):
    """Bring NVML's numbers up to date; ``own`` says whether it names this process."""
    mine, others = card.reserved + card.own_other, card.foreign
    processes = ([(os.getpid(), mine)] if own else []) + ([(1, others)] if others else [])
    processes += card.siblings.items()
    mine += sum(card.siblings.values())
    library.GPUS[:] = [
        {"uuid": UUID, "bus": "0000:00:00.0", "total": card.total, "used": mine + others, "driver": 0,
         "processes": processes}
    ]  # fmt: skip
