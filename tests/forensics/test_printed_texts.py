"""Texts that frameworks, launchers and libraries print, beyond the collected corpus, and what each one means."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from watcherml.forensics.classify import classify_exception, classify_text
from watcherml.forensics.rules import RULES

PRINTED = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "data" / "printed.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize("one", PRINTED, ids=[f"{at}-{one['exception_type'][-30:]}" for at, one in enumerate(PRINTED)])
def test_a_printed_text_gets_the_class_that_it_means(one: dict[str, str]) -> None:
    found = classify_text(one["exception_type"], one["message"])
    assert (found.failure_class, found.subkind) == (one["label"], one["subkind"]), f"{found.rule}: {found.matched!r}"


def test_the_texts_cover_every_class_and_are_no_repetitions() -> None:
    counted = Counter(one["label"] for one in PRINTED)
    assert set(counted) == {row.failure_class for row in RULES} - {"simulated_out_of_memory"}
    assert len({(one["exception_type"], one["message"]) for one in PRINTED}) == len(PRINTED) > 250


TRACED = (
    "Dynamo failed to run FX node with fake tensors: call_function <built-in method mm>(*(FakeTensor(..., size=(2, 3))"
    ', FakeTensor(..., size=(4, 5))), **{{}}): got {}\n\nfrom user code:\n   File "a.py", line 3, in f\n    x @ y'
)
QUOTED = [
    ("RuntimeError('a and b must have same reduction dim, but got [2, 3] X [4, 5].')", "tensor_shape_mismatch"),
    ("RuntimeError('Unhandled FakeTensor Device Propagation for x, found two different devices cpu, cuda:0')",
     "device_mismatch"),
    ("KeyError('CUDA out of memory. Tried to allocate 2.00 GiB')", "unclassified"),
]  # fmt: skip


@pytest.mark.parametrize(("quoted", "expected"), QUOTED)
def test_what_a_compiled_call_raised_while_it_was_traced_decides(quoted: str, expected: str) -> None:
    assert classify_text("torch._dynamo.exc.TorchRuntimeError", TRACED.format(quoted)).failure_class == expected


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
FRAMES = ["Traceback (most recent call last):", '  File "train.py", line 5, in main', "    loss.backward()", OOM]


@pytest.mark.parametrize("before", ["", "  ", "[rank1]: ", "(train pid=77, ip=10.0.0.2) ", "E   ", "0: "])
def test_a_traceback_is_read_behind_what_a_launcher_prints_before_each_line(before: str) -> None:
    text = "\n".join(before + line for line in FRAMES)
    for found in (classify_text("RuntimeError", text), classify_exception(RuntimeError(f"rank 1 failed\n{text}"))):
        assert (found.failure_class, found.exception_type) == ("cuda_out_of_memory", "torch.OutOfMemoryError")
    quoting = text.replace("torch.OutOfMemoryError: ", "KeyError: '")
    assert classify_text("RuntimeError", quoting).failure_class == "unclassified"
