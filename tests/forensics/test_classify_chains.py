"""The classifier's reading of chains, groups, notes, printed tracebacks, and of whatever is hostile."""

from __future__ import annotations

import sys
import time
import traceback

import pytest
import torch
from failure_texts import BUILD, CUDA, FILE, NONE, OOM, SHAPE, SIM, SIMULATED, chain, raised

from watcherml.forensics.classify import classify_exception, classify_text


def fnf(text: str) -> FileNotFoundError:
    return FileNotFoundError(text)


SHAPES = "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"
CHAINS = [
    ("a cause inside a wrapper", [(RuntimeError(OOM), "cause"), (ValueError("training failed"), "")], CUDA),
    ("a context inside a wrapper", [(RuntimeError(OOM), "context"), (ValueError("training failed"), "")], CUDA),
    ("a suppressed context", [(RuntimeError(OOM), "suppressed"), (ValueError("training failed"), "")], NONE),
    ("the innermost cause", [(fnf("a"), "cause"), (RuntimeError(SHAPES), "cause"), (Exception(), "")], FILE),
    ("a missing key that was handled", [(KeyError("cache"), "context"), (RuntimeError(OOM), "")], CUDA),
    ("a missing file that was handled", [(FileNotFoundError("cache"), "context"), (RuntimeError(OOM), "")], CUDA),
    ("an import that was handled", [(ImportError("apex"), "context"), (RuntimeError(SHAPES), "")], SHAPE),
    ("a handler that fails after the memory ran out", [(RuntimeError(OOM), "context"), (fnf("b"), "")], CUDA),
    ("host memory as the cause", [(MemoryError(), "cause"), (RuntimeError(OOM), "")], NONE),
    ("handled, then caused", [(ImportError("a"), "context"), (ValueError(), "cause"), (RuntimeError(OOM), "")], CUDA),
    ("our device as the cause", [(RuntimeError(SIMULATED), "cause"), (RuntimeError(OOM), "")], SIM),
    ("an exit after the memory ran out", [(RuntimeError(OOM), "context"), (SystemExit(1), "")], CUDA),
    ("Ctrl-C while it was handled", [(RuntimeError(OOM), "context"), (KeyboardInterrupt(), "")], NONE),
    ("a name error as the cause of a known error", [(NameError("apex"), "cause"), (ImportError("apex"), "")], BUILD),
]


@pytest.mark.parametrize(("steps", "expected"), [row[1:] for row in CHAINS], ids=[row[0] for row in CHAINS])
def test_the_innermost_cause_decides(steps: list[tuple[BaseException, str]], expected: str) -> None:
    outer = chain(*steps)
    assert classify_exception(outer).failure_class == expected
    # The same from what was printed, as a store keeps it.
    kind = type(outer).__name__
    printed = "".join(traceback.format_exception(outer))
    assert classify_text(kind, str(outer), printed).failure_class == expected


@pytest.mark.parametrize("mode", ["Context", "Verbose", "Plain", "Minimal"])
def test_a_traceback_that_ipython_printed_is_read_as_well(mode: str) -> None:
    ultratb = pytest.importorskip("IPython.core.ultratb")
    inner = raised(torch.OutOfMemoryError(OOM))
    outer = raised(chain((inner, "cause"), (ValueError("training failed"), "")))
    printer = ultratb.AutoFormattedTB(mode=mode)
    text = printer.text(type(outer), outer, outer.__traceback__)
    found = classify_text("ValueError", "training failed", text)
    if mode == "Minimal":  # prints the outermost line only
        assert found.failure_class == NONE
    else:
        assert (found.failure_class, found.exception_type.rpartition(".")[2]) == (CUDA, "OutOfMemoryError")


def test_the_deciding_type_is_named_not_its_wrapper() -> None:
    outer = chain((torch.OutOfMemoryError(OOM), "cause"), (ValueError("training failed"), ""))
    found = classify_exception(outer)
    assert (found.exception_type, found.rule) == ("torch.OutOfMemoryError", "cuda-torch-caching-allocator")
    assert found.matched.startswith("CUDA out of memory. Tried to allocate 2")
    assert classify_exception(ValueError("x")).exception_type == "ValueError"


class GroupOfTheirOwn(Exception):
    """A group as libraries for Python 3.10 build it."""

    def __init__(self, message: str, exceptions: object) -> None:
        super().__init__(message)
        self.exceptions = exceptions


def test_members_of_a_group_decide_and_memory_comes_first() -> None:
    memory = chain((RuntimeError(OOM), "cause"), (ValueError(), ""))
    assert classify_exception(GroupOfTheirOwn("2 workers", [fnf("a"), memory])).failure_class == CUDA
    assert classify_exception(GroupOfTheirOwn("x", (fnf("a"), RuntimeError(SHAPES)))).failure_class == FILE
    assert classify_exception(GroupOfTheirOwn(OOM, [ValueError()])).failure_class == CUDA
    assert classify_exception(GroupOfTheirOwn("x", 5)).failure_class == NONE


@pytest.mark.skipif(sys.version_info < (3, 11), reason="ExceptionGroup came with Python 3.11")
def test_a_real_group_raised_and_printed() -> None:
    group_type = __builtins__["ExceptionGroup"]  # type: ignore[index]
    inner = group_type("inner", [raised(ValueError("b")), raised(RuntimeError(OOM))])
    group = raised(group_type(f"quoting {OOM}", [raised(FileNotFoundError("a")), inner]))
    assert classify_exception(group).failure_class == CUDA
    printed = "".join(traceback.format_exception(group))
    assert classify_text("ExceptionGroup", str(group), printed).failure_class == CUDA
    quoting = raised(group_type(OOM, [raised(ValueError("b")), raised(KeyError("c"))]))
    assert classify_exception(quoting).failure_class == NONE
    assert classify_text("ExceptionGroup", OOM, "".join(traceback.format_exception(quoting))).failure_class == NONE
    two = raised(group_type("x", [raised(FileNotFoundError("a")), raised(RuntimeError(SHAPES))]))
    assert classify_text("ExceptionGroup", "x", "".join(traceback.format_exception(two))).failure_class == FILE


NOTES = [
    ([f'Traceback (most recent call last):\n  File "a.py", line 1, in f\ntorch.OutOfMemoryError: {OOM}'], CUDA),
    ([f"RuntimeError: {OOM}"], CUDA),
    (["step 3", f"worker said {SIMULATED}"], SIM),
    ([f"if you see {OOM} lower the batch size"], NONE),
    ([f"Hint: {OOM}"], NONE),
    ([f"KeyError: '{OOM}'"], NONE),
    (["plain", 5, None], NONE),
    ("not a list", NONE),
]


@pytest.mark.parametrize(("notes", "expected"), NOTES)
def test_notes_count_where_they_hold_a_printed_exception(notes: object, expected: str) -> None:
    error = ValueError("training failed")
    error.__notes__ = notes  # type: ignore[attr-defined]
    assert classify_exception(error).failure_class == expected


def test_a_note_does_not_outrank_the_exception_itself() -> None:
    error = FileNotFoundError("a")
    error.__notes__ = [f"RuntimeError: {OOM}"]  # type: ignore[attr-defined]
    assert classify_exception(error).failure_class == FILE


class TheirOom(torch.OutOfMemoryError):
    """A subclass as frameworks define it."""


class TheirValueError(ValueError):
    """A type whose name hides what it is."""


def test_bases_of_a_real_exception_are_known() -> None:
    assert classify_exception(TheirOom(OOM)).failure_class == CUDA
    assert classify_exception(TheirValueError(OOM)).failure_class == NONE
    hidden = type("Trouble", (FileNotFoundError,), {})
    assert classify_exception(hidden("a")).failure_class == FILE


class Hostile(Exception):
    """An exception whose every answer is an error."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    @property
    def simulated(self) -> bool:
        raise RuntimeError("no")

    @property
    def exceptions(self) -> list[Exception]:
        raise RuntimeError("no")

    @property
    def __notes__(self) -> list[str]:
        raise RuntimeError("no")


def test_hostile_exceptions_are_unclassified_and_do_no_harm() -> None:
    found = classify_exception(Hostile())
    assert (found.failure_class, found.rule) == (NONE, "none")
    surrogate = classify_exception(RuntimeError("\ud800 CUDA out of memory. Tried to allocate 1\ud800"))
    assert surrogate.failure_class == CUDA
    named = type("x" * 900, (Exception,), {"__module__": "\ud800"})
    assert len(classify_exception(named("a")).exception_type) == 400


def test_cycles_and_endless_chains_end() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__context__, second.__context__ = second, first
    assert classify_exception(first).failure_class == NONE
    group = GroupOfTheirOwn("x", [])
    group.exceptions = [group, RuntimeError(OOM)]
    assert classify_exception(group).failure_class == CUDA
    long: BaseException = RuntimeError("0")
    for number in range(5_000):
        outer = RuntimeError(str(number))
        outer.__context__ = long
        long = outer
    assert classify_exception(long).failure_class == NONE
    deep = GroupOfTheirOwn("x", [RuntimeError(OOM)])
    for _ in range(2_000):
        deep = GroupOfTheirOwn("x", [deep])
    assert classify_exception(deep).failure_class == NONE


def test_classifying_changes_nothing_in_the_exception() -> None:
    inner = raised(RuntimeError(OOM))
    outer = raised(chain((inner, "cause"), (ValueError("x"), "")))

    def state() -> list[object]:
        return [(one.__traceback__, one.__cause__, one.__context__, dict(one.__dict__)) for one in (outer, inner)]

    before = state()
    classify_exception(outer)
    assert state() == before


HOSTILE = [
    *("'", "' ", "\"'`", "a b ", "\n", "a.", "  | ", "tensors ", "loss is ", "enforce fail at ", '  File "\nA: b\n'),
    *("CUDA out of memory ", "Out of memory. Tried to allocate 1", "Traceback (most recent call last):\n"),
]


@pytest.mark.parametrize("unit", HOSTILE)
def test_a_megabyte_of_hostile_text_is_read_in_linear_time(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    started = time.perf_counter()
    classify_text("torch.OutOfMemoryError", text, text)
    assert time.perf_counter() - started < 5  # below 0.3 s; a quadratic pattern needs minutes


def test_a_long_log_is_read_at_both_ends() -> None:
    filler = "step 1 loss 2.5\n" * 10_000
    assert classify_text("RuntimeError", f"{filler}{OOM}").failure_class == CUDA
    assert classify_text("RuntimeError", f"{OOM}{filler}").failure_class == CUDA
    assert classify_text("RuntimeError", f"{filler}{SIMULATED[:40]}{filler}").failure_class == SIM
