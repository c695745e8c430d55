"""What can be known without importing torch: the active device, and how sizes are written.

A sampler, a failure handler or a command line asks here first, so that looking for a simulated device
never loads torch into a process that did not load it itself.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from typing import TYPE_CHECKING

from watcherml.errors import DeviceError, InvalidValue
from watcherml.sealed.canonical import MAX_SAFE_INTEGER

if TYPE_CHECKING:
    from watcherml.simulated.device import SimulatedDevice

# The block size of the CUDA caching allocator (kMinBlockSize of CUDACachingAllocator); every count is a multiple.
GRANULARITY_BYTES = 512

_UNITS = {"bytes": 1, "byte": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_SIZE = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([A-Za-z]+)\s*")
_WANTED = "a size such as '96 MiB', in bytes, KiB, MiB or GiB (powers of 1024)"


def parse_bytes(text: str, field: str = "size") -> int:
    """Return the bytes that a size such as ``"96 MiB"`` or ``"1.5 GiB"`` names, rounded to the nearest.

    Units are powers of 1024 (``bytes``, ``B``, ``KiB``, ``MiB``, ``GiB``) in any case. Raises
    ``InvalidValue``, naming ``field``, for anything else: no unit, a decimal unit, a sign, more than 2**53 - 1.
    """
    if not isinstance(text, str):
        raise InvalidValue(field, expected=_WANTED, got=_describe(text))
    match = _SIZE.fullmatch(text)
    unit = match.group(2).lower() if match else ""
    if match is None or unit not in _UNITS:
        raise InvalidValue(field, expected=_WANTED, got=_describe(text), remedy=_size_remedy(text))
    size = round(Decimal(match.group(1)) * _UNITS[unit])
    if size > MAX_SAFE_INTEGER:
        raise InvalidValue(field, expected=f"at most {MAX_SAFE_INTEGER} bytes", got=_describe(text))
    return size


def format_bytes(size: int) -> str:
    """Return a size in bytes as PyTorch's allocator messages write it: ``96.00 MiB``, ``512 bytes``.

    The limits are inclusive, as in ``format_size`` of c10: 1024 stays ``1024 bytes``. Raises
    ``InvalidValue`` for what is not an integer of at least 0.
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise InvalidValue("size", expected="an integer of at least 0 bytes", got=_describe(size))
    if size <= 2**10:
        return f"{size} bytes"
    for unit, scale in (("KiB", 2**10), ("MiB", 2**20)):
        if size <= scale * 2**10:
            return f"{size / scale:.2f} {unit}"
    return f"{size / 2**30:.2f} GiB"


def parse_budget(budget: int | str | None) -> int | None:
    """Return a memory budget in bytes, or None for no limit.

    Raises ``InvalidValue`` for a budget below one granule of 512 bytes, above 2**53 - 1, or of another type.
    """
    if budget is None:
        return None
    wanted = f"bytes (an integer), {_WANTED}, or None for no limit"
    if isinstance(budget, bool) or not isinstance(budget, (int, str)):
        raise InvalidValue("budget", expected=wanted, got=_describe(budget))
    size = parse_bytes(budget, "budget") if isinstance(budget, str) else budget
    if not GRANULARITY_BYTES <= size <= MAX_SAFE_INTEGER:
        raise InvalidValue(
            "budget",
            expected=f"{GRANULARITY_BYTES} to {MAX_SAFE_INTEGER} bytes",
            got=_describe(budget),
            remedy="Measure the peak of a run with budget=None first, then choose a budget below it.",
        )
    return size


# Called with the loader and the elements of a batch, before the device takes it in.
batch_listeners: list[Callable[[object, int], None]] = []
# Above 0 while a device fetches from a loader, whose own batches are then not training's yet.
taking = 0
# Tells the devices of one process apart, also when one is gone and another has its address.
serials = itertools.count(1)
# How many requests simulated devices have refused in this process; a forked child goes on from its parent's.
refusals = 0

# By process id: a forked child copies this memory and must not take its parent's device for its own.
_active: dict[int, SimulatedDevice] = {}
_latest: dict[int, SimulatedDevice] = {}


def current() -> SimulatedDevice | None:
    """Return the device that is active in this process, or None; a forked child has none."""
    return _active.get(os.getpid())


def last() -> SimulatedDevice | None:
    """Return the device that was entered last in this process, active or not, or None.

    It holds counters, never tensors, and stays readable after the training function has raised.
    """
    return _latest.get(os.getpid())


def host_memory() -> AbstractContextManager[None]:
    """Return a context whose tensors are host memory: data sets that training reads its batches from.

    On the simulated device they do not count until an operator outside uses them (a view counts its whole base).
    Without one, and in another thread than the one that entered it, the context does nothing, so that a training
    function can have it wherever it runs. What a torch DataLoader reads is host memory without it.
    """
    device = current()
    return nullcontext() if device is None else device.host()


def batch_taken(loader: object, elements: int) -> None:
    """Tell the listeners of a batch; what they raise is theirs and never the training's."""
    for hear in tuple(batch_listeners):
        try:
            hear(loader, elements)
        except Exception:  # noqa: BLE001 - see above
            continue


def activate(device: SimulatedDevice) -> None:
    """Make the device the active one; raises ``DeviceError`` if this process has an active one already."""
    active = _active.setdefault(os.getpid(), device)  # one step, so that of two threads one is refused
    if active is not device:
        raise DeviceError(
            "simulated device",
            expected="no other simulated device active in this process",
            got=f"one with a budget of {_budget_words(active.budget_bytes)}",
            remedy="Leave its `with` block first; a process has one simulated device at a time.",
        )
    _latest[os.getpid()] = device


def deactivate(device: SimulatedDevice) -> None:
    """Let go of the device if it is the active one; ``last()`` keeps it."""
    if current() is device:
        del _active[os.getpid()]


def _budget_words(budget_bytes: int | None) -> str:
    return "no limit" if budget_bytes is None else format_bytes(budget_bytes)


def _describe(value: object) -> str:
    text = repr(value)
    return f"{text if len(text) <= 80 else text[:77] + '...'} ({type(value).__name__})"


def _size_remedy(text: str) -> str:
    decimal = re.fullmatch(r"\s*([0-9.]+)\s*([KMG])B?\s*", text, re.IGNORECASE)
    if decimal:
        return f"Write {decimal.group(1)} {decimal.group(2).upper()}iB."
    if re.fullmatch(r"\s*[0-9]+\s*", text):
        return f"Write '{text.strip()} bytes' or '{text.strip()} MiB'."
    return ""
