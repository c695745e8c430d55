"""Give back the memory that a failed cell still holds, and say what holds the rest.

A failed frame keeps its locals alive through the exception's traceback, through ``sys.last_*`` and through
IPython's own references. The recipe is that of `facts/notebook.md`, section 2 (measured on Python 3.10 to 3.13):
clear every frame of the whole chain, *then read* ``f_locals`` once more, because on Python 3.12 and older a
renderer has left a dict of the locals on the frame that only this empties; then drop the references; then collect.

What is to be kept as evidence (locals as shapes and bytes) must be captured before: afterwards it is gone.
Nothing of the user's is deleted: globals that still hold memory are named, not touched.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import inspect
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import AsyncGeneratorType, CoroutineType, FrameType, FunctionType, GeneratorType, TracebackType
from typing import Annotated, Any, ClassVar

import psutil

from watcherml.forensics.holders import GRAPH, Holder, holders_of
from watcherml.forensics.holders import holders as holders
from watcherml.forensics.matching import ask, real
from watcherml.recorder.framework import cuda_in_use
from watcherml.recorder.life import name_of
from watcherml.sealed.fields import ByteCount, Count, Items, Line
from watcherml.sealed.record import Record
from watcherml.simulated import active
from watcherml.simulated.active import format_bytes

MAX_EXCEPTIONS = 10_000  # of one chain; more is a cycle that ids cannot see
MAX_KEPT = 10  # holders named in one release
WORTH_NAMING_BYTES = 2**20  # smaller holders are listed, but not in the sentence
LIBRARIES_BYTES = 2**26  # cuBLAS and others take their workspaces through PyTorch, and keep them
_WAITS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
_FRAME_OF = {GeneratorType: "gi_frame", CoroutineType: "cr_frame", AsyncGeneratorType: "ag_frame"}
# A name for what may stay, words for it (None: its own), and the means to see whether it has.
_Left = tuple[str, str | None, weakref.ref[Any]]
_LAST = ("last_type", "last_value", "last_traceback", "last_exc")


@dataclass(frozen=True, slots=True, eq=False)
class Release(Record):
    """What was let go of, and the memory in use just before and just after, in bytes.

    CUDA figures are the reserved bytes of this process over all devices, ``None`` where CUDA is not initialised;
    simulated figures are those of the last simulated device, ``None`` where there is none. ``frames_cleared`` counts
    frames whose locals were emptied; frames that are still running are left alone, and so are generators and
    coroutines that wait to go on, which are named in ``kept``. ``kept`` names the biggest
    tensors and arrays that are still held, biggest first.
    """

    KIND: ClassVar[str] = "watcherml.release"

    frames_cleared: Count
    exceptions: Count
    stack_kept: bool
    rss_before_bytes: ByteCount | None
    rss_after_bytes: ByteCount | None
    cuda_reserved_before_bytes: ByteCount | None
    cuda_reserved_after_bytes: ByteCount | None
    simulated_before_bytes: ByteCount | None
    simulated_after_bytes: ByteCount | None
    kept: Annotated[tuple[Holder, ...], Items(0, MAX_KEPT)]
    sentence: Line


@dataclass(frozen=True)
class _Memory:
    rss: int | None
    cuda: int | None  # reserved
    cuda_in_use: int | None
    simulated: int | None


def release_frames(exc: BaseException | None, shell: Any = None, keep_stack: bool = False) -> Release:
    """Empty the frames that ``exc`` and its whole chain hold, drop the references, collect, and measure.

    ``exc`` may be ``None`` for the exception that ``sys`` remembers as the last one. ``shell`` is the IPython shell
    whose references go too and whose user namespace is searched for holders; without one it is ``__main__``'s.
    With ``keep_stack`` only the locals go: ``%tb`` still prints the stack, ``%debug`` still walks it. Class bodies and
    captured variables of a stack that somebody keeps stay alive with it, and are named in ``kept``.

    Call it after the cell (``post_run_cell``) or outside the ``except`` block: frames that still run cannot be
    cleared. Do not call it while an interactive debugger owns the frames (``shell.call_pdb``).
    """
    before = _measure()
    reached = _reached(exc, shell)
    count = len(reached)
    frames = [frame for one in reached for frame in _frames(real(one, "__traceback__"))]
    keep_stack = keep_stack and bool(frames)  # one that went before cannot be kept
    suspended = _suspended(frames)
    cleared, left = _clear(frames, suspended)
    left += [one for error in reached for one in _with_the_exception(error)]
    del suspended
    if not keep_stack:
        _drop(reached, {id(frame) for frame in frames}, shell)
    # The caller's own reference is harmless now; ours must go before the collector runs.
    exc = None
    del frames, reached
    gc.collect()
    _return_unused()
    after = _measure()
    kept = _still_held(_user_namespace(shell), left)
    return Release(
        cleared,
        count,
        keep_stack,
        before.rss,
        after.rss,
        before.cuda,
        after.cuda,
        before.simulated,
        after.simulated,
        kept[:MAX_KEPT],
        _sentence(cleared, count, keep_stack, before, after, kept),
    )


def _chain(exc: BaseException) -> list[BaseException]:
    """Return every exception reachable from this one, by object id; suppressed contexts hold frames as well."""
    found: dict[int, BaseException] = {}
    waiting: list[Any] = [exc]
    while waiting and len(found) < MAX_EXCEPTIONS:
        one = waiting.pop()
        if isinstance(one, BaseException) and id(one) not in found:
            found[id(one)] = one
            members = ask(one, "exceptions")
            waiting += [real(one, "__cause__"), real(one, "__context__")]
            waiting += members if isinstance(members, (list, tuple)) else ()
    return list(found.values())


def remembered(shell: Any) -> Iterator[BaseException]:
    """Yield the exceptions that Python and the shell remember as the last ones, the printed one first."""
    result = ask(shell, "last_execution_result")
    for owner, name in ((sys, "last_exc"), (sys, "last_value"), (result, "error_in_exec")):
        value = ask(owner, name)
        if isinstance(value, BaseException):
            yield value


def _reached(exc: BaseException | None, shell: Any) -> list[BaseException]:
    """Return the chain of ``exc``, and of a remembered exception that wraps it; others' frames are not ours."""
    if exc is None:
        exc = next(remembered(shell), None)
    if exc is None:
        return []
    found = {id(one): one for one in _chain(exc)}
    for outer in remembered(shell):
        chain = _chain(outer)
        if any(one is exc for one in chain):
            found.update((id(one), one) for one in chain)
    return list(found.values())


def _frames(traceback: TracebackType | None) -> Iterator[FrameType]:
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _suspended(frames: Iterable[FrameType]) -> dict[int, Any]:
    """Return the generators and coroutines that wait in one of these frames, by the frame's id.

    Such a one caught the failure itself and goes on: to clear its frame would end it.
    """
    suspects = {id(frame): frame for frame in frames if frame.f_code.co_flags & _WAITS}
    if not suspects:
        return {}
    found = {}
    for one in gc.get_referrers(*suspects.values()):
        for kind, name in _FRAME_OF.items():
            frame = getattr(one, name) if isinstance(one, kind) else None
            if frame is not None and id(frame) in suspects:
                found[id(frame)] = one
    return found


def _clear(frames: Iterable[FrameType], suspended: Mapping[int, Any]) -> tuple[int, list[_Left]]:
    """Empty the frames but suspended ones; return how many, and what they hold that cannot be emptied."""
    cleared: set[int] = set()
    left: list[_Left] = []
    for frame in frames:
        if id(frame) in cleared:
            continue
        if id(frame) in suspended:
            cleared.add(id(frame))
            words = f"a suspended {type(suspended[id(frame)]).__name__.replace('_', ' ')}"
            # No name that %xdel could take.
            left += _weak({f"{frame.f_code.co_name[:398]}()": suspended[id(frame)]}, words)
            continue
        try:
            frame.clear()
        except RuntimeError:  # still running; reading its locals now would store a copy of them
            continue
        cleared.add(id(frame))
        left += _weak({f"{frame.f_code.co_name}.{name}": value for name, value in _uncleared(frame).items()})
    return len(cleared - suspended.keys()), left


def _with_the_exception(error: BaseException) -> Iterator[_Left]:
    """Yield what an exception holds in attributes and arguments: they stay for as long as somebody keeps it."""
    kind, args, attributes = name_of(type(error)), ask(error, "args"), ask(error, "__dict__")
    if isinstance(args, tuple):
        yield from _weak({f"{kind}.args[{number}]": value for number, value in enumerate(args)})
    if type(attributes) is dict:
        yield from _weak({f"{kind}.{name}": value for name, value in attributes.items()})


def _uncleared(frame: FrameType) -> Mapping[str, Any]:
    """Return what a cleared frame still holds for as long as somebody keeps it; reading empties the stored locals.

    A class body runs in a dict of its own, and from Python 3.11 on a frame holds its function and thereby the
    variables that this captured. Both may belong to something that lives on, so neither is emptied.
    """
    code, held = frame.f_code, frame.f_locals
    if code.co_flags & inspect.CO_NEWLOCALS:
        held = {}
        for function in gc.get_referents(frame) if code.co_freevars else ():
            if isinstance(function, FunctionType) and function.__code__ is code:
                held.update(_captured(function))
    return held if code.co_name != "<module>" else {}


def _captured(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue


def _weak(found: Mapping[str, Any], words: str | None = None) -> Iterator[_Left]:
    for name, value in found.items():
        try:
            yield name[:400], words, weakref.ref(value)
        except TypeError:  # a list or a dict cannot be watched
            continue


def _still_held(namespace: Mapping[str, Any], left: Iterable[_Left]) -> tuple[Holder, ...]:
    """Return what is held now, biggest first: by names, and by what stayed although the frames are empty."""
    alive = [(name, words, ref()) for name, words, ref in left]
    beside = {name: value for name, _, value in alive if value is not None}
    words_for = {name: words for name, words, value in alive if value is not None and words is not None}
    found = holders_of(namespace, beside)
    named = {id(value) for _, value in found}
    kept = [holder.replace(what=words_for.get(holder.name, holder.what)) for holder, _ in found]
    kept += [Holder(name, 0, words) for name, words in words_for.items() if id(beside[name]) not in named]
    return tuple(sorted(kept, key=lambda holder: -holder.bytes))


def _drop(reached: list[BaseException], frame_ids: set[int], shell: Any) -> None:
    """Drop the tracebacks and every known reference to them; what belongs to another failure stays."""
    ids = {id(one) for one in reached}
    renderer = ask(shell, "InteractiveTB")
    rendered = [*_frames(ask(renderer, "tb")), ask(ask(renderer, "pdb"), "botframe")]
    ours = any(id(ask(sys, name)) in ids for name in ("last_exc", "last_value"))
    if renderer is not None and (ours or any(id(frame) in frame_ids for frame in rendered)):
        renderer.tb = None
        renderer.pdb = None
    if ours:
        for name in _LAST:
            if hasattr(sys, name):
                delattr(sys, name)
    # The result of the cell keeps its error: from it the kernel tells failure from success after we are done.
    for one in reached:
        BaseException.__dict__["__traceback__"].__set__(one, None)


def _user_namespace(shell: Any) -> Mapping[str, Any]:
    namespace = getattr(shell, "user_ns", None)
    if isinstance(namespace, Mapping):
        return namespace
    found = getattr(sys.modules.get("__main__"), "__dict__", None)  # embedded interpreters have none, or another object
    return found if isinstance(found, Mapping) else {}


def _measure() -> _Memory:
    try:
        rss: int | None = psutil.Process().memory_info().rss
    except psutil.Error:
        rss = None
    cuda = cuda_in_use()
    devices = range(cuda.device_count()) if cuda else ()
    reserved = sum(cuda.memory_reserved(index) for index in devices) if cuda else None
    in_use = sum(cuda.memory_allocated(index) for index in devices) if cuda else None
    device = active.last()
    return _Memory(rss, reserved, in_use, None if device is None else int(device.current_bytes))


def _return_unused() -> None:
    """Give back to the driver and the system what PyTorch's cache and the C library keep for later requests."""
    cuda = cuda_in_use()
    if cuda:
        cuda.empty_cache()
    # Of the GNU C library; other systems do without.
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _sentence(
    frames: int, exceptions: int, keep_stack: bool, before: _Memory, after: _Memory, kept: tuple[Holder, ...]
) -> str:
    if not exceptions:
        return "No failed cell to release: no exception is remembered."
    parts = [
        part
        for part in (
            _gain("CUDA memory reserved by PyTorch", before.cuda, after.cuda),
            _gain("simulated device memory", before.simulated, after.simulated),
            _gain("process memory", before.rss, after.rss),
        )
        if part
    ]
    done = f"Cleared {_count(frames, 'frame')} of {_count(exceptions, 'exception')}"
    stack = "the stack is kept without its locals" if keep_stack else "the stack is gone, so %debug has nothing to walk"
    large = [one for one in kept[:MAX_KEPT] if one.bytes >= WORTH_NAMING_BYTES]
    named = [f"{one.name} ({format_bytes(one.bytes)}, {one.what})" for one in large]
    held = f"Still held by {', '.join(named)}" if named else "No name of yours holds a large tensor or array"
    gave = ", ".join(parts) or "an amount nobody could measure"
    return f"{done}; {stack}. Gave back {gave}. {held}.{_how(kept)}{_elsewhere(after, kept)}"[:2_000]


def _elsewhere(after: _Memory, kept: tuple[Holder, ...]) -> str:
    """Return what the device still holds beyond the values that have names, and where to look for it."""
    named = sum(one.bytes for one in kept)  # some of it may lie in host memory: the rest is at least this much
    for what, in_use, least in (
        ("the CUDA memory in use", after.cuda_in_use, LIBRARIES_BYTES),
        ("the simulated device's memory", after.simulated, WORTH_NAMING_BYTES),
    ):
        rest = 0 if in_use is None else in_use - named
        if rest >= least:
            graphs = [one.name for one in kept if one.what.endswith(GRAPH)][:MAX_KEPT]
            where = f"An {GRAPH} is kept by {', '.join(graphs)}, and with it what backward would need."
            where = where if graphs else "Look at what libraries, threads and callbacks keep."
            return f" Of {what}, at least {format_bytes(rest)} is in no tensor that a name leads to. {where}"
    return ""


def _how(kept: tuple[Holder, ...]) -> str:
    """Return what a person can type to let go of the biggest holder that is worth naming."""
    biggest = next((one.name.partition(",")[0] for one in kept if one.bytes >= WORTH_NAMING_BYTES), "")
    if biggest.startswith("Out["):
        return " `%reset -f out` lets go of what Out holds."
    return f" `%xdel {biggest}` lets go of {biggest}." if biggest.isidentifier() else ""


def _gain(what: str, before: int | None, after: int | None) -> str:
    if before is None or after is None:
        return ""
    return f"{format_bytes(max(0, before - after))} of {what} ({format_bytes(before)} -> {format_bytes(after)})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
