"""The figures that an out-of-memory text states, as bytes.

The allocator prints one sentence whose wording changed several times (`facts/torch.md`, section 2: text read
in PyTorch's sources and wheels from 0.4 to 2.14). Every figure is optional, and none is derived from another:
a missing figure is ``None``, never zero, and the parser does not assume that parts sum up, that the allocated
amount is below the capacity, or that anything is free.

A printed figure is rounded to two decimals of its unit, about 5.4 MB for GiB. ``rounding_bytes`` carries that
half-width, so that a difference of two figures can be judged as an interval.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from watcherml.errors import InvalidValue
from watcherml.sealed.canonical import MAX_SAFE_INTEGER
from watcherml.sealed.fields import Bound, ByteCount, Items, Text
from watcherml.sealed.record import Record

# The text that our own memory-budgeted CPU device puts in front of its message (`facts/simulated-device.md`, 6).
SIMULATED_LABEL = "[SIMULATED memory-budgeted CPU device"
SIMULATED_DEVICE_NAME = "simulated-cpu-budget"
MAX_PROCESSES = 1_000  # sentences about processes that are kept; a GPU has a handful

_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
# Repetition is bounded and a number may not start inside another one, so that a search stays linear in the text.
_SIZE = r"(?<![0-9.,])([0-9]{1,25}(?:\.[0-9]{1,6})?) (bytes|KiB|MiB|GiB)"
_GROUPED = r"(?<![0-9.,])([0-9]{1,3}(?:,[0-9]{3}){1,8}|[0-9]{1,25}) (bytes)"

_REQUEST = r"(?:Tried to allocate|Allocation was preemptively rejected)"
# The allocator of cudaMallocAsync prints a list of its own, and 2**64 bytes where no fraction was set.
_ASYNC = re.compile(r"\bAllocation on device ([0-9]{1,4}) would exceed allowed memory\. \(out of memory\)")
_STATEMENT = re.compile(r"\b[Oo]ut of memory\. " + _REQUEST + "|" + _ASYNC.pattern)
_PREFIX = re.compile(r"\b([A-Za-z][A-Za-z0-9_]{0,31})(?: backend| error:| runtime error \(2\) :)? out of memory\b")
_GENERIC = re.compile(r"(?:^|(?<=[:\]\n] )|(?<=\n))Out of memory\. " + _REQUEST)
_BRACKETED = re.compile(r"\bError \[([A-Z]{2,16})\]: out of memory\b")
_SIMULATED_OP = re.compile(re.escape(SIMULATED_LABEL) + r" \(no GPU\); op=([A-Za-z0-9_.:]{1,120})\]")
_GPU = re.compile(r"\bGPU {1,2}([0-9]{1,4})(?=;| has a total)|\bdevice:GPU:([0-9]{1,4})\b")
_OWN = re.compile(r"\bthis process has " + _SIZE + " memory in use")
_PROCESS = re.compile(r"\bProcess ([0-9]{1,10}) has " + _SIZE + " memory in use")
_ABSURD = re.compile(r"\bTried to allocate more than 1EB\b")

_FIGURES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("tried_bytes", r"\bTried to allocate " + _SIZE),
        ("tried_bytes", r"\bRequested size: " + _SIZE),
        ("tried_bytes", r"\nRequested {1,20}: " + _SIZE),
        ("tried_bytes", r"\b[Oo]ut of memory (?:to allocate|allocating) " + _GROUPED),
        ("total_bytes", _SIZE + r" total capac?i?ty\b"),
        ("total_bytes", r"\bhas a total capac?i?ty of " + _SIZE),
        ("total_bytes", r"\nDevice limit {1,20}: " + _SIZE),
        ("free_bytes", r"\nFree \(according to CUDA\): " + _SIZE),
        ("free_bytes", r"\bof which " + _SIZE + r" is free\b"),
        ("free_bytes", _SIZE + r" free(?=[;)])"),
        ("allocated_bytes", _SIZE + r" already allocated\b"),
        ("allocated_bytes", _SIZE + r" is allocated by PyTorch\b"),
        ("allocated_bytes", r"\nCurrently allocated {1,20}: " + _SIZE),
        ("allocated_bytes", r"\(allocated so far: " + _GROUPED),
        ("reserved_bytes", _SIZE + r" reserved in total by PyTorch\b"),
        ("reserved_unallocated_bytes", _SIZE + r" cached(?=[;)])"),
        ("reserved_unallocated_bytes", _SIZE + r" is reserved by PyTorch but unallocated\b"),
        ("private_pool_bytes", _SIZE + r" allocated in private pools\b"),
        ("allowed_bytes", _SIZE + r" allowed;"),
        ("allowed_bytes", r"\nPyTorch limit \(set by [^()\n]{1,80}\)\n? {1,40}: " + _SIZE),
        ("allowed_bytes", r"\blimit set to: " + _GROUPED),
    )
)

Device = Annotated[str, Text(0, 64)]
Operator = Annotated[str, Text(1, 120)]
GpuIndex = Annotated[int, Bound(0, 9_999)]
Pid = Annotated[int, Bound(0, 9_999_999_999)]


@dataclass(frozen=True, slots=True, eq=False)
class ProcessUse(Record):
    """One sentence ``Process PID has X memory in use``.

    The process is another one, or this one seen from outside its container; ``in_use_bytes`` is ``None``
    where the driver printed 2**64 for "not available".
    """

    KIND: ClassVar[str] = "watcherml.oom-process"

    pid: Pid
    in_use_bytes: ByteCount | None
    rounding_bytes: ByteCount = 0


@dataclass(frozen=True, slots=True, eq=False)
class OomMessage(Record):
    """What one out-of-memory text states; sizes in bytes, ``None`` for what it does not state.

    ``tried_bytes`` is the segment the allocator asked the driver for, not the tensor, except on the simulated
    device. ``reserved_unallocated_bytes`` is also the ``cached`` of torch 1.0-1.3. ``tried_absurd`` tells that the
    request was too large to be a number here (``more than 1EB``, or above 2**53 - 1 bytes).

    ``device_name`` is the word in front of "out of memory" (``CUDA``, ``HIP``, ``XPU``, ``MPS`` ...), ``CUDA`` for the
    list that only its asynchronous allocator prints, empty for a device-generic text. A text of our own device is
    ``simulated`` and never names CUDA here; its one ``Process`` sentence is about this process and therefore fills
    ``process_in_use_bytes``.
    """

    KIND: ClassVar[str] = "watcherml.oom-message"

    tried_bytes: ByteCount | None = None
    total_bytes: ByteCount | None = None
    free_bytes: ByteCount | None = None
    allocated_bytes: ByteCount | None = None
    reserved_bytes: ByteCount | None = None
    reserved_unallocated_bytes: ByteCount | None = None
    private_pool_bytes: ByteCount | None = None
    allowed_bytes: ByteCount | None = None
    process_in_use_bytes: ByteCount | None = None
    gpu_index: GpuIndex | None = None
    device_name: Device | None = None
    simulated: bool = False
    op: Operator | None = None
    tried_absurd: bool = False
    processes: Annotated[tuple[ProcessUse, ...], Items(0, MAX_PROCESSES)] = ()
    rounding_bytes: Mapping[str, ByteCount] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse a half-width without its figure, and a simulated text that names another device."""
        for name in self.rounding_bytes:
            if name not in _NAMES or getattr(self, name) is None:
                raise InvalidValue("OomMessage.rounding_bytes", expected="names of stated figures", got=repr(name)[:80])
        if self.simulated and self.device_name != SIMULATED_DEVICE_NAME:
            raise InvalidValue("OomMessage.device_name", expected=SIMULATED_DEVICE_NAME, got=str(self.device_name))

    @property
    def foreign_in_use_bytes(self) -> tuple[int, ...]:
        """The known figures of ``processes``, in the order of the text."""
        return tuple(use.in_use_bytes for use in self.processes if use.in_use_bytes is not None)

    def interval(self, name: str) -> tuple[int, int] | None:
        """Return the lowest and highest byte count that rounds to the figure ``name``, or ``None`` if not stated.

        Raises ``InvalidValue`` if no figure has this name.
        """
        if name not in _NAMES:
            raise InvalidValue("name", expected="one of " + ", ".join(_NAMES), got=repr(name)[:80])
        value: int | None = getattr(self, name)
        if value is None:
            return None
        half = self.rounding_bytes.get(name, 0)
        return max(0, value - half), value + half


_NAMES = (*dict.fromkeys(name for name, _ in _FIGURES), "process_in_use_bytes")


def parse(message: str) -> OomMessage:
    """Return the figures of an out-of-memory text; never raises, and takes time linear in its length.

    The sentence may stand anywhere in the text (trainers and workers wrap it). Where a text holds several,
    for instance a log of retries, only the first one is read, so that figures of two failures never mix.
    """
    text = _first_statement(message)
    simulated = SIMULATED_LABEL in message
    values: dict[str, int] = {}
    rounding: dict[str, int] = {}
    absurd = _ABSURD.search(text) is not None
    for name, pattern in _FIGURES:
        if name not in values and (found := pattern.search(text)):
            fits = _store(name, found[1], found[2], values, rounding)
            absurd = absurd or (name == "tried_bytes" and not fits)
    if found := _OWN.search(text):
        _store("process_in_use_bytes", found[1], found[2], values, rounding)
    processes = _processes(text)
    if simulated:
        if processes and processes[0].in_use_bytes is not None:
            values["process_in_use_bytes"] = processes[0].in_use_bytes
            rounding["process_in_use_bytes"] = processes[0].rounding_bytes
        processes = ()
    op = _SIMULATED_OP.search(message)
    return OomMessage(
        **values,
        gpu_index=_gpu_index(text),
        device_name=SIMULATED_DEVICE_NAME if simulated else _device_name(text),
        simulated=simulated,
        op=op[1] if op else None,
        tried_absurd=absurd,
        processes=processes,
        rounding_bytes={name: half for name, half in rounding.items() if half},
    )


def _first_statement(message: str) -> str:
    starts = [found.start() for found in itertools.islice(_STATEMENT.finditer(message), 2)]
    return message[: starts[1]] if len(starts) == 2 else message


def _measure(number: str, unit: str) -> tuple[int, int]:
    """Return the byte count of a printed size and the half-width of its rounding, by integer arithmetic."""
    whole, _, decimals = number.replace(",", "").partition(".")
    scale = 10 ** len(decimals)
    factor = _UNITS[unit]
    value = (2 * int(whole + decimals) * factor + scale) // (2 * scale)
    half = -(-factor // (2 * scale)) if factor > 1 else 0
    return value, half


def _store(name: str, number: str, unit: str, values: dict[str, int], rounding: dict[str, int]) -> bool:
    value, half = _measure(number, unit)
    if value > MAX_SAFE_INTEGER:  # 2**64 is how "not available" is printed
        return False
    values[name], rounding[name] = value, half
    return True


def _processes(text: str) -> tuple[ProcessUse, ...]:
    uses = []
    for found in itertools.islice(_PROCESS.finditer(text), MAX_PROCESSES):
        value, half = _measure(found[2], found[3])
        known = value <= MAX_SAFE_INTEGER
        uses.append(ProcessUse(int(found[1]), value if known else None, half if known else 0))
    return tuple(uses)


def _gpu_index(text: str) -> int | None:
    found = _GPU.search(text)
    if found:
        return int(found[1] or found[2])
    listed = _ASYNC.search(text)
    return int(listed[1]) if listed else None


def _device_name(text: str) -> str | None:
    for found in _PREFIX.finditer(text):
        if found[1] == "cuda":  # torch <= 0.4
            return "CUDA"
        if found[1][0].isupper():
            return found[1]
    if _ASYNC.search(text):
        return "CUDA"
    bracketed = _BRACKETED.search(text)
    if bracketed:
        return bracketed[1]
    return "" if _GENERIC.search(text) else None
