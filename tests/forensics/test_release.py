"""Releasing failures in plain Python: watched objects really die, what cannot die is named, the gain is measured."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from watcherml.forensics.release import Release, release_frames


class Big:
    """Stands for a tensor: it can be watched."""


@pytest.fixture
def watched() -> Iterator[list[weakref.ref[Big]]]:
    refs: list[weakref.ref[Big]] = []
    gc.disable()
    yield refs
    gc.enable()


@pytest.fixture
def remember() -> Iterator[Callable[[BaseException], None]]:
    """Let ``sys`` remember an exception as the last one, for the time of a test."""
    names = ("last_type", "last_value", "last_traceback", "last_exc")
    before = {name: getattr(sys, name) for name in names if hasattr(sys, name)}

    def set_last(error: BaseException) -> None:
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__

    yield set_last
    for name in names:
        if hasattr(sys, name):
            delattr(sys, name)
    for name, value in before.items():
        setattr(sys, name, value)


Remember = Callable[[BaseException], None]


def make(refs: list[weakref.ref[Big]]) -> Big:
    big = Big()
    refs.append(weakref.ref(big))
    return big


def alive(refs: list[weakref.ref[Big]]) -> int:
    return sum(ref() is not None for ref in refs)


def inner(refs: list[weakref.ref[Big]], argument: Big) -> None:
    local = make(refs)
    raise RuntimeError(f"{local} {argument}")


def nested(refs: list[weakref.ref[Big]]) -> None:
    outer = make(refs)
    inner(refs, make(refs))
    del outer


def closure(refs: list[weakref.ref[Big]]) -> None:
    captured = make(refs)

    def use() -> None:
        local = make(refs)
        raise RuntimeError(f"{local} {captured}")

    use()


def raise_from(refs: list[weakref.ref[Big]]) -> None:
    first = make(refs)
    try:
        nested(refs)
    except RuntimeError as error:
        raise ValueError(str(first)) from error


def suppressed(refs: list[weakref.ref[Big]]) -> None:
    try:
        nested(refs)
    except RuntimeError:
        raise ValueError("hides its context") from None


def comprehension(refs: list[weakref.ref[Big]]) -> None:
    held = [make(refs) for _ in range(3)]
    _ = [nested(refs) for _ in held]


def generator(refs: list[weakref.ref[Big]]) -> None:
    def produce() -> Iterator[Big]:
        local = make(refs)
        yield local
        raise RuntimeError("exhausted the hard way")

    for _ in produce():
        make(refs)


def recursion(refs: list[weakref.ref[Big]], depth: int = 31) -> None:
    local = make(refs)
    if depth == 0:
        raise RuntimeError(str(local))
    recursion(refs, depth - 1)


def coroutine(refs: list[weakref.ref[Big]]) -> None:
    async def work() -> None:
        local = make(refs)
        nested(refs)
        del local

    work().send(None)


def grouped(refs: list[weakref.ref[Big]]) -> None:
    members = []
    for _ in range(2):
        try:
            nested(refs)
        except RuntimeError as error:
            members.append(error)
    group = RuntimeError("2 workers")
    group.exceptions = members  # type: ignore[attr-defined]
    raise group


SHAPES = [nested, raise_from, suppressed, comprehension, generator, recursion, coroutine, grouped]


def fail(shape: Callable[[list[weakref.ref[Big]]], None], refs: list[weakref.ref[Big]]) -> BaseException:
    try:
        shape(refs)
    except (RuntimeError, ValueError) as error:
        return error
    raise AssertionError("the shape did not fail")


def look(error: BaseException | None) -> None:
    """Read the locals of every frame, as a renderer does; on Python 3.12 and older that stores them on the frame."""
    trace = error.__traceback__ if error else None
    while trace is not None:
        dict(trace.tb_frame.f_locals)
        trace = trace.tb_next
    if error is not None:
        look(error.__cause__ or error.__context__)


@pytest.mark.parametrize(
    ("shape", "keep_stack"), [(closure, False), *((shape, keep) for shape in SHAPES for keep in (False, True))]
)
def test_everything_a_failure_held_is_dead(
    shape: Callable[[list[weakref.ref[Big]]], None], keep_stack: bool, watched: list[weakref.ref[Big]]
) -> None:
    saved = [fail(shape, watched)]  # kept by the user, as in errors.append(e)
    look(saved[0])
    gc.collect()
    assert alive(watched) >= 1
    found = release_frames(saved[0], keep_stack=keep_stack)
    assert alive(watched) == 0
    assert found.frames_cleared >= 2 and found.stack_kept is keep_stack
    assert (saved[0].__traceback__ is not None) is keep_stack


def test_a_traceback_that_the_user_kept_holds_nothing_any_more(watched: list[weakref.ref[Big]]) -> None:
    error = fail(nested, watched)
    kept = error.__traceback__
    look(error)
    release_frames(error)
    assert kept is not None and error.__traceback__ is None
    assert alive(watched) == 0


def test_counts_name_what_was_done(watched: list[weakref.ref[Big]]) -> None:
    found = release_frames(fail(raise_from, watched))
    assert found.exceptions == 2
    # raise_from itself, nested and inner; the frame of fail() is finished as well, and stands in the outer traceback.
    assert found.frames_cleared == 4
    assert found.sentence.startswith("Cleared 4 frames of 2 exceptions; the stack is gone")


def test_frames_that_still_run_are_left_alone(watched: list[weakref.ref[Big]]) -> None:
    mine = make(watched)
    try:
        nested(watched)
    except RuntimeError as error:
        release_frames(error)
        assert alive(watched) == 1, "only the local of this running frame may be left"
    assert mine is watched[0]()


def test_the_wrapper_that_sys_remembers_is_released_with_its_cause(
    watched: list[weakref.ref[Big]], remember: Remember
) -> None:
    outer = fail(raise_from, watched)
    remember(outer)
    inner = outer.__cause__
    assert inner is not None
    found = release_frames(inner)
    assert found.exceptions == 2 and outer.__traceback__ is None and alive(watched) == 0
    assert not hasattr(sys, "last_value") and not hasattr(sys, "last_traceback") and not hasattr(sys, "last_type")


def test_another_failure_that_sys_remembers_is_not_touched(watched: list[weakref.ref[Big]], remember: Remember) -> None:
    other = fail(nested, [])
    remember(other)
    release_frames(fail(nested, watched))
    assert sys.last_value is other and other.__traceback__ is not None and alive(watched) == 0


def test_without_an_exception_the_last_one_is_released(watched: list[weakref.ref[Big]], remember: Remember) -> None:
    remember(fail(nested, watched))
    assert release_frames(None).exceptions == 1
    assert alive(watched) == 0
    nothing = release_frames(None)
    assert (nothing.exceptions, nothing.frames_cleared) == (0, 0)
    assert nothing.sentence == "No failed cell to release: no exception is remembered."


def test_cycles_of_exceptions_end(watched: list[weakref.ref[Big]]) -> None:
    first, second = fail(nested, watched), fail(nested, watched)
    first.__context__, second.__cause__ = second, first
    first.exceptions = [first, second, "no exception"]  # type: ignore[attr-defined]
    assert release_frames(first).exceptions == 2
    assert alive(watched) == 0


def test_a_captured_variable_of_a_kept_stack_is_named(watched: list[weakref.ref[Big]]) -> None:
    def outer() -> None:
        table = np.zeros(2**18)
        watched.append(weakref.ref(table))  # type: ignore[arg-type]

        def step() -> None:
            raise RuntimeError(len(table))

        step()

    error = fail(lambda _: outer(), watched)
    found = release_frames(error, keep_stack=True)
    names = [holder.name for holder in found.kept]
    assert names.count("step.table") == alive(watched), "named exactly where Python keeps it (3.11 and newer)"
    again = release_frames(error)
    assert alive(watched) == 0 and "step.table" not in again.sentence


def test_a_class_body_whose_traceback_is_kept_is_named(watched: list[weakref.ref[Big]]) -> None:
    def body() -> None:
        class Config:
            table = np.zeros(2**18)
            watched.append(weakref.ref(table))  # type: ignore[arg-type]
            raise RuntimeError("in a class body")

    error = fail(lambda _: body(), watched)
    kept = error.__traceback__
    found = release_frames(error)
    named = [holder for holder in found.kept if holder.name == "Config.table"]
    assert kept is not None
    assert len(named) == alive(watched), "named exactly where Python keeps it (3.12 and older)"
    assert all(holder.bytes == 2**21 and "Config.table" in found.sentence for holder in named)


def test_a_class_body_nobody_keeps_is_gone_and_not_named(watched: list[weakref.ref[Big]]) -> None:
    def body() -> None:
        class Config:
            table = np.zeros(2**18)
            watched.append(weakref.ref(table))  # type: ignore[arg-type]
            raise RuntimeError("in a class body")

    found = release_frames(fail(lambda _: body(), watched))
    assert alive(watched) == 0
    assert not [holder for holder in found.kept if holder.name.startswith("Config.")]


def test_real_tensors_come_back_and_the_gain_is_measured() -> None:
    def train() -> None:
        batch = torch.ones(2**24)  # 64 MiB
        weight = torch.ones(2**24, requires_grad=True)
        loss = (batch * weight).sum()
        raise torch.OutOfMemoryError(f"CUDA out of memory. {loss.shape}")

    error = fail(lambda _: train(), [])
    look(error)
    found = release_frames(error)
    assert found.rss_before_bytes is not None and found.rss_after_bytes is not None
    assert found.rss_before_bytes - found.rss_after_bytes > 120 * 2**20
    assert "of process memory" in found.sentence
    assert found.cuda_reserved_before_bytes is None and found.cuda_reserved_after_bytes is None
    assert "CUDA" not in found.sentence
    assert Release.from_json(found.to_json()) == found


def test_the_simulated_device_shows_the_gain_and_is_called_simulated() -> None:
    from watcherml.simulated.device import simulated_device

    def train() -> None:
        held = torch.zeros(2**20)
        torch.zeros(2**22) + held

    with simulated_device("8 MiB"):
        error = fail(lambda _: train(), [])
        found = release_frames(error)
    assert (found.simulated_before_bytes, found.simulated_after_bytes) == (4 * 2**20, 0)
    assert "4.00 MiB of simulated device memory (4.00 MiB -> 0 bytes)" in found.sentence


class Cuda:
    """What ``torch.cuda`` answers in a process that uses a GPU; the real one is tested in tests/gpu."""

    def __init__(self, refs: list[weakref.ref[Big]], initialised: bool) -> None:
        self.refs, self.initialised, self.calls = refs, initialised, []

    def is_initialized(self) -> bool:
        return self.initialised

    def device_count(self) -> int:
        return 2

    def memory_reserved(self, index: int) -> int:
        self.calls.append(f"reserved {index}")
        return alive(self.refs) * 2**30

    def memory_allocated(self, index: int) -> int:
        return alive(self.refs) * 2**29

    def empty_cache(self) -> None:
        self.calls.append(f"empty with {alive(self.refs)} alive")


@pytest.mark.parametrize("initialised", [True, False])
def test_the_cuda_cache_is_emptied_after_the_frames_and_only_where_cuda_is_in_use(
    initialised: bool, watched: list[weakref.ref[Big]], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = fail(nested, watched)
    cuda = Cuda(watched, initialised)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))  # type: ignore[arg-type]
    found = release_frames(error)
    if not initialised:
        assert cuda.calls == [] and found.cuda_reserved_before_bytes is None
        return
    assert cuda.calls == ["reserved 0", "reserved 1", "empty with 0 alive", "reserved 0", "reserved 1"]
    assert (found.cuda_reserved_before_bytes, found.cuda_reserved_after_bytes) == (6 * 2**30, 0)
    assert "6.00 GiB of CUDA memory reserved by PyTorch (6.00 GiB -> 0 bytes)" in found.sentence


@pytest.mark.skipif(sys.platform != "linux", reason="the C library of other systems decides by itself")
def test_small_blocks_go_back_to_the_system_as_well() -> None:
    """The C library keeps freed blocks below one in use for later requests; the process looks as large as before."""
    pins: list[bytes] = []

    def fail() -> None:
        held = [b"x" * 60_000 for _ in range(600)]
        pins.append(b"x" * 60_000)
        raise RuntimeError(str(len(held)))

    found = None
    try:
        fail()
    except RuntimeError as error:
        found = error
    told = release_frames(found)
    assert told.rss_before_bytes is not None and told.rss_after_bytes is not None
    assert told.rss_before_bytes - told.rss_after_bytes > 30_000_000


def test_a_generator_that_caught_the_failure_itself_goes_on_and_is_named() -> None:
    def stream() -> Iterator[tuple[int, BaseException | None]]:
        kept = torch.zeros(2**20)
        for number in range(4):
            try:
                if number == 1:
                    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")
                yield number + int(kept[0]), None
            except RuntimeError as error:
                yield number, error

    going = stream()
    next(going)
    cause = next(going)[1]

    def cell() -> None:
        raise RuntimeError("the step failed") from cause

    with pytest.raises(RuntimeError) as info:
        cell()
    found = release_frames(info.value)
    named = {holder.name: holder for holder in found.kept}
    assert named["stream()"].what == "a suspended generator" and named["stream()"].bytes == 2**22
    assert "stream() (4.00 MiB, a suspended generator)" in found.sentence and "%xdel" not in found.sentence
    assert [number for number, _ in going] == [2, 3]


def test_a_generator_that_ended_with_the_failure_is_emptied(watched: list[weakref.ref[Big]]) -> None:
    def stream() -> Iterator[int]:
        big = make(watched)
        yield 1
        raise RuntimeError(f"failed with {big}")

    going = stream()
    with pytest.raises(RuntimeError) as info:
        list(going)
    found = release_frames(info.value)
    assert alive(watched) == 0 and found.kept == () and not list(going)


def test_a_coroutine_that_caught_the_failure_itself_goes_on_and_is_named() -> None:
    class Pause:
        def __await__(self) -> Iterator[BaseException]:
            try:
                raise RuntimeError("CUDA out of memory.")
            except RuntimeError as error:
                yield error

    async def serve() -> str:
        await Pause()
        return "served"

    going = serve()
    found = release_frames(going.send(None))
    assert [holder.name for holder in found.kept if "suspended" in holder.what]
    with pytest.raises(StopIteration) as ended:
        going.send(None)
    assert ended.value.value == "served"


@pytest.mark.parametrize("main", [None, object(), SimpleNamespace(big=1)], ids=["none", "no names", "another object"])
def test_without_a_main_module_a_release_still_says_what_it_did(main: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """An embedded interpreter, or a program that took ``__main__`` out of ``sys.modules``."""
    if main is None:
        monkeypatch.delitem(sys.modules, "__main__")
    else:
        monkeypatch.setitem(sys.modules, "__main__", main)  # type: ignore[arg-type]
    assert "Cleared" in release_frames(fail(inner_only, [])).sentence


def inner_only(refs: list[weakref.ref[Big]]) -> None:
    raise RuntimeError
