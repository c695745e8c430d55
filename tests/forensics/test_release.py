"""Releasing failed cells in a real IPython shell and in plain Python: objects really die, and holders are named."""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
import textwrap
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from watcherml.forensics import release
from watcherml.forensics.holders import holders_of
from watcherml.forensics.release import Release, holders, release_frames


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


# --- plain Python -----------------------------------------------------------------------------------------------

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


def test_another_failure_that_sys_remembers_is_not_touched(
    watched: list[weakref.ref[Big]], remember: Remember
) -> None:
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


# --- figures ----------------------------------------------------------------------------------------------------

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


# --- holders ----------------------------------------------------------------------------------------------------

def named(found: tuple[Any, ...]) -> dict[str, int]:
    return {holder.name: holder.bytes for holder in found}


def test_holders_are_named_biggest_first_and_shared_bytes_count_once() -> None:
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 256)).sum().backward()
    optimizer.step()
    weights = 256 * 256 * 4 + 256 * 4
    space = {
        "model": model,
        "alias": model,
        "optimizer": optimizer,
        "view": model.weight[0],
        "history": [torch.zeros(1000), {"deep": (np.zeros(1000), 5)}],
        "trainer": SimpleNamespace(model=model, buffer=torch.zeros(10, dtype=torch.int8)),
        "step": 7,
        "text": "x" * 10**6,
    }
    found = holders(space, limit=10)
    assert named(found) == {
        "optimizer": 2 * weights + 2 * 4,
        "model, alias": 2 * weights,
        "history": 4_000 + 8_000,
        "trainer": 10,
    }
    assert [holder.bytes for holder in found] == sorted((holder.bytes for holder in found), reverse=True)
    assert named(holders(space, limit=1)) == {"optimizer": 2 * weights + 8}
    assert holders(space, limit=0) == ()
    assert {holder.what for holder in found} >= {"Linear with 4 tensors or arrays"}


def test_a_view_counts_with_all_of_its_storage() -> None:
    assert named(holders({"view": torch.zeros(1000)[:1]})) == {"view": 4_000}
    assert named(holders({"view": np.zeros(1000)[:1]})) == {"view": 8_000}
    assert named(holders({"a": np.zeros(1000, dtype="int8"), "b": torch.zeros(0)})) == {"a": 1_000}
    tensor = torch.zeros(1000)
    assert named(holders({"array": tensor.numpy(), "tensor": tensor})) == {"array": 4_000}


def test_what_a_holder_is_stands_in_words() -> None:
    loss = (torch.ones(3, requires_grad=True) * 2).sum()
    found = holders({"loss": loss, "a": np.zeros((2, 3)), "l": [torch.zeros(2)]})
    assert {holder.name: holder.what for holder in found} == {
        "loss": "float32 tensor () on cpu, with its autograd graph",
        "a": "float64 array (2, 3)",
        "l": "list with 1 tensor or array",
    }


def test_caches_of_the_shell_come_after_the_users_names() -> None:
    value = torch.zeros(1000)
    out = {3: value, 4: torch.zeros(500)}
    found = named(holders({"_": value, "_3": value, "Out": out, "_oh": out, "x": value, "In": ["x"]}))
    assert found == {"x, _, _3": 4_000, "Out, _oh": 2_000}


def test_what_holds_no_memory_of_its_own_is_skipped(tmp_path: Any) -> None:
    mapped = np.memmap(tmp_path / "file", dtype="int8", mode="w+", shape=(1000,))
    space = {
        "module": torch, "type": torch.nn.Linear, "function": np.zeros, "none": None, 5: torch.zeros(3),
        "meta": torch.zeros(1000, device="meta"), "mapped": mapped, "sparse": torch.eye(100).to_sparse(),
        "error": RuntimeError(), "empty": [],
    }
    assert holders(space) == ()  # type: ignore[arg-type]
    del mapped


class Proxy:
    """Answers every question about itself with an error."""

    __slots__ = ()

    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise RuntimeError("no")

    def __getattr__(self, name: str) -> object:
        raise RuntimeError("no")


def test_hostile_values_and_endless_containers_do_no_harm() -> None:
    endless: list[Any] = [torch.zeros(10)]
    endless.append(endless)
    wide = [0] * 10**6
    deep: list[Any] = [torch.zeros(10)]
    for _ in range(5_000):
        deep = [deep]
    found = named(holders({"proxy": Proxy(), "endless": endless, "deep": deep, "wide": wide, "\ud800": torch.zeros(1)}))
    assert found["endless"] == 40 and "deep" not in found


def test_holders_keep_nothing_alive() -> None:
    value = torch.zeros(10)
    ref = weakref.ref(value)
    holders({"value": value})
    holders_of({"value": value})
    del value
    assert ref() is None


# --- a real shell -----------------------------------------------------------------------------------------------

SHELL = """
    import gc, io, json, sys, weakref
    from IPython.core.interactiveshell import InteractiveShell
    from watcherml.forensics.release import release_frames

    mode, keep_stack, act = sys.argv[1], sys.argv[2] == "keep", sys.argv[3] == "act"
    shell = InteractiveShell.instance()
    refs, told = [], {}

    class Big:
        def __init__(self):
            refs.append(weakref.ref(self))

    def alive():
        return sum(ref() is not None for ref in refs)

    def after(result):
        if act and result.error_in_exec is not None:
            found = release_frames(result.error_in_exec, shell, keep_stack)
            told["last"] = found.to_data()

    shell.events.register("post_run_cell", after)
    shell.user_ns.update(Big=Big, keep=[])
    NESTED = "def g(x):\\n c = Big()\\n raise RuntimeError('cell failed')\\ndef f():\\n a = Big()\\n g(Big())\\n"
    TRY = NESTED + "try:\\n f()\\nexcept RuntimeError as e:\\n "
    CELLS = {
        "nested": NESTED + "f()",
        "from": NESTED + "def h():\\n b = Big()\\n try:\\n  f()\\n except RuntimeError as e:\\n"
                + "  raise ValueError('outer') from e\\nh()",
        "closure": "def f():\\n a = Big()\\n def g():\\n  b = Big()\\n  raise RuntimeError(str(a))\\n g()\\nf()",
        "class body": "def f():\\n class C:\\n  a = Big()\\n  raise RuntimeError('x')\\nf()",
        "comprehension": NESTED + "def h():\\n return [g(y) for y in [Big(), Big()]]\\nh()",
        "generator": NESTED + "def p():\\n a = Big()\\n yield a\\n f()\\ndef h():\\n for b in p():\\n  pass\\nh()",
        "recursion": "def f(n):\\n a = Big()\\n if n == 0:\\n  raise RuntimeError('deep')\\n f(n - 1)\\nf(31)",
        "await": NESTED + "async def h():\\n b = Big()\\n f()\\nawait h()",
        "saved exception": TRY + "keep.append(e)\\n raise",
        "saved traceback": TRY + "keep.append(e.__traceback__)\\n raise",
    }
    real, sys.stdout, sys.stderr = sys.stdout, io.StringIO(), io.StringIO()
    gc.disable()
    shell.run_line_magic("xmode", mode)
    answer = {}
    for name, cell in CELLS.items():
        refs.clear()
        sys.stdout.seek(0), sys.stdout.truncate()
        result = shell.run_cell(cell, store_history=True)
        answer[name] = {"alive": alive(), "success": result.success, "printed": "Error" in sys.stdout.getvalue()}
        if keep_stack and act:
            sys.stdout.seek(0), sys.stdout.truncate()
            shell.run_line_magic("tb", "")
            answer[name]["tb"] = sys.stdout.getvalue()
        answer[name]["last"] = hasattr(sys, "last_value")
        answer[name]["told"] = told.pop("last", None)
        shell.user_ns["keep"].clear()
        gc.collect()
    # After %debug: the debugger holds frames too.
    shell.events.unregister("post_run_cell", after)
    refs.clear()
    result = shell.run_cell(NESTED + "f()")
    sys.stdin = io.StringIO("up\\nq\\n")
    shell.run_line_magic("debug", "")
    before = alive()
    shell.run_cell("1 + 1")
    shell.user_ns["table"] = __import__("numpy").zeros(2**18)
    found = release_frames(None, shell) if act else None
    answer["debug"] = {"before": before, "alive": alive(), "told": found and found.to_data(), "success": result.success}
    sys.stdout = real
    print(json.dumps(answer))
"""


def run_shell(mode: str, keep: str, act: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(SHELL), mode, keep, act],
        capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout.strip().splitlines()[-1])  # type: ignore[no-any-return]


@pytest.fixture(scope="module", params=["Context", "Verbose", "Minimal"])
def released(request: pytest.FixtureRequest) -> dict[str, Any]:
    pytest.importorskip("IPython")
    return run_shell(request.param, "drop", "act")


def test_without_the_release_every_shape_is_held() -> None:
    """The control: the shell below would pass if nothing were held in the first place."""
    pytest.importorskip("IPython")
    answer = run_shell("Context", "drop", "rest")
    assert all(shape["alive"] > 0 for shape in answer.values())


def test_every_shape_of_cell_dies_in_a_real_shell(released: dict[str, Any]) -> None:
    shapes = {name: shape for name, shape in released.items() if name != "debug"}
    assert {name for name, shape in shapes.items() if shape["alive"]} == set()
    assert len(shapes) == 10
    for shape in shapes.values():
        assert shape["printed"] and not shape["last"]
        assert not shape["success"], "the kernel builds its reply from the result: the cell must still have failed"
        assert shape["told"]["frames_cleared"] >= 2


def test_after_debug_and_from_a_later_cell_it_still_works(released: dict[str, Any]) -> None:
    debug = released["debug"]
    assert debug["before"] > 0 and debug["alive"] == 0
    assert [(holder["name"], holder["bytes"]) for holder in debug["told"]["kept"]] == [("table", 2**21)]
    assert "Still held by table (2.00 MiB, float64 array (262144,))" in debug["told"]["sentence"]


def test_keeping_the_stack_lets_go_of_the_locals_only() -> None:
    pytest.importorskip("IPython")
    answer = run_shell("Context", "keep", "act")
    shapes = {name: shape for name, shape in answer.items() if name not in ("debug", "class body", "closure")}
    assert {name for name, shape in shapes.items() if shape["alive"]} == set()
    for name, shape in shapes.items():
        assert shape["last"] and "Error" in shape["tb"], name
        assert "the stack is kept" in shape["told"]["sentence"]
    printed = re.sub(r"\x1b\[[0-9;]*m", "", answer["nested"]["tb"])
    assert "RuntimeError: cell failed" in printed and "def g(x):" in printed


def test_the_holders_function_is_part_of_this_module() -> None:
    assert release.holders is holders
