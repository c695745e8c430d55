"""C25, C26, C0, C1, C2: readings and requests that no pool of memory explains. They are asked first."""

from __future__ import annotations

from watcherml.forensics.causes import size
from watcherml.forensics.causes.thresholds import CORROBORATING_FREE_BYTES, CORROBORATING_USE
from watcherml.forensics.causes.vector import Vector
from watcherml.forensics.causes.weigh import Finding, excluded, sufficient, unknown
from watcherml.forensics.text import amount

# Where one of these holds, the figures mean something else than the other rules take them for.
DECIDE_ALONE = ("C25", "C26", "C0")


def findings(vector: Vector) -> list[Finding]:
    """Return what each guard says."""
    return [_oversubscribed(vector), _anomaly(vector), _host(vector), _disguised(vector), _absurd(vector)]


def _oversubscribed(vector: Vector) -> Finding:
    held, total = vector.allocated, vector.capacity
    if held is None or total is None:
        return unknown("C25", "Not measured: what torch holds, or the device's size.")
    if held > total:
        sentence = f"torch holds {amount(held)}, more than the device's {amount(total)}: the driver is lending system"
        return sufficient("C25", f"{sentence} memory, so nothing here fits honestly.", held)
    return excluded("C25", f"torch holds {amount(held)}, no more than the device's {amount(total)}.", held)


def _anomaly(vector: Vector) -> Finding:
    short, block, largest = vector.missing, vector.requested, vector.largest_inactive
    if block is not None and largest is not None and largest >= block:
        sentence = f"A cached block of {amount(largest)} would have held the {amount(block)} that were asked for: the"
        return sufficient("C26", f"{sentence} allocator did not use it; run the control trial first.", largest)
    if short is None:
        return unknown("C26", "Not measured: the request, or what was free.")
    if vector.allowed is not None and vector.reserved is None and short.low <= 0:
        return unknown("C26", "Not measured: what torch had reserved under the cap.")
    if short.high <= 0:
        sentence = "More was free than was asked for, so size alone does not explain the failure: look for a cap, a"
        sentence += " neighbour that has left, or pinned host memory, and run the control trial before any change."
        return sufficient("C26", sentence, short.middle)
    if short.low <= 0:
        return unknown("C26", "The message rounds its figures: whether anything was missing cannot be told.", None)
    return excluded("C26", f"{amount(short.middle)} more were asked for than were free.", short.middle)


def _host(vector: Vector) -> Finding:
    short = vector.missing
    if vector.host_signature:
        sentence = (
            f"Host memory ran out, not the device's ({vector.host_signature[:200]}): use fewer data workers or no"
        )
        return sufficient("C0", f"{sentence} pinned memory; nothing on the device would help.", None)
    if vector.exit_signal == "SIGKILL":
        if vector.host_kills is None:
            return unknown("C0", "A process was killed; whether for want of host memory was not counted.")
        if vector.host_kills > 0:
            sentence = (
                "The system killed a process for want of host memory: use fewer data workers, or smaller buffers."
            )
            return sufficient("C0", sentence, None)
    pinning = any("pin_memory" in file or "pin_memory" in function for file, function in vector.frames)
    if pinning and short is not None and short.high <= 0:
        sentence = "Pinning host memory failed while the device had room: use fewer data workers, or no pinned memory."
        return sufficient("C0", sentence, None)
    return excluded("C0", "Nothing in the failure points at host memory.")


def _disguised(vector: Vector) -> Finding:
    if not vector.error_is_disguised:
        return excluded("C1", "The error is the allocator's own.")
    free, total = vector.free, vector.capacity
    if free is None:
        return unknown("C1", "Not measured: what was free when the library failed.")
    # Of the device is in use what is not free: R + N + X = C - F.
    full = free < CORROBORATING_FREE_BYTES or (total is not None and total - free >= CORROBORATING_USE * total)
    if full:
        sentence = f"A library failed while only {amount(free)} were free: it is out of memory. Run the control trial,"
        return sufficient("C1", f"{sentence} then make the step smaller.", free)
    sentence = f"A library failed while {amount(free)} were free: rather an earlier asynchronous error; run once with"
    return excluded("C1", f"{sentence} CUDA_LAUNCH_BLOCKING=1.", free)


def _absurd(vector: Vector) -> Finding:
    asked, total = vector.requested, vector.capacity
    if vector.request_is_absurd:
        sentence = "One request was larger than any device (more than 1 EB): look at the shapes in that line."
        return sufficient("C2", sentence, None)
    if asked is None or total is None:
        return unknown("C2", "Not measured: the request, or the device's size.")
    if asked <= total:
        return excluded("C2", f"One request of {amount(asked)} is within the device's {amount(total)}.", asked)
    named = size.named(vector) or ("made of this micro-batch" if vector.request_scales else "")
    if named:
        return excluded("C2", f"The request of {amount(asked)} exceeds the device, but is {named}: it scales.", asked)
    sentence = f"One request of {amount(asked)} exceeds the whole device ({amount(total)}): look at the shapes in that"
    return unknown("C2", f"{sentence} line. Not measured: whether a smaller batch makes it smaller.", asked)
