"""The scores: every row of the table, and that what is not known earns nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from watcherml.forensics.difference import Side
from watcherml.forensics.similar import Failure, model_of, score_failures, score_success, shape_of, total

GIB = 2**30
NOW = Failure(
    "cuda_out_of_memory", "torch_caching_allocator", "torch.OutOfMemoryError", "CUDA out of memory. ...",
    "train.py:31 in step", "forward", "cuda", 80 * GIB, 2 * GIB, "demo", {"model": "gpt"},
)  # fmt: skip


def points(name, parts):
    return next(part.points for part in parts if part.name == name)


def test_a_failure_is_wholly_like_itself():
    parts = score_failures(NOW, NOW)
    assert total(parts) == sum(part.possible for part in parts) == 100


FAILURES = [
    ("subkind", {"subkind": "cublas_alloc_failed"}, 0),
    ("exception", {"exception_type": "RuntimeError"}, 0),
    ("message", {"requested_bytes": int(2.1 * GIB)}, 20),
    ("message", {"requested_bytes": 4 * GIB}, 12),
    ("message", {"requested_bytes": 8 * GIB}, 5),
    ("message", {"requested_bytes": GIB // 4}, 0),
    ("where", {"where": "train.py:88 in step"}, 25),  # a line moves with every edit
    ("where", {"where": "train.py:31 in other"}, 8),
    ("where", {"where": "model.py:31 in step"}, 0),
    ("phase", {"phase": "backward"}, 0),
    ("device", {"capacity_bytes": 24 * GIB}, 5),
    ("device", {"device_kind": "simulated"}, 0),
    ("model", {"config": {"model": {"name": "bert"}}}, 0),
    ("model", {"config": {"model": {"name": "gpt"}}}, 5),
    ("project", {"project": "other"}, 0),
]


@pytest.mark.parametrize(("name", "changes", "expected"), FAILURES)
def test_each_part_earns_what_the_table_says(name, changes, expected):
    parts = score_failures(NOW, replace(NOW, **changes))
    assert points(name, parts) == expected
    others = [part for part in parts if part.name != name]
    assert all(part.points == part.possible for part in others), "only that part changes"
    assert next(part for part in parts if part.name == name).says


UNKNOWN = [
    ("subkind", {"subkind": ""}), ("where", {"where": ""}), ("phase", {"phase": "unknown"}), ("phase", {"phase": ""}),
    ("device", {"device_kind": "none"}), ("model", {"config": {}}), ("model", {"config": None}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes"), UNKNOWN)
def test_what_neither_side_knows_earns_nothing(name, changes):
    same = replace(NOW, **changes)
    assert points(name, score_failures(same, same)) == 0


def test_messages_without_sizes_are_compared_by_their_words():
    def shape(message):
        return replace(NOW, requested_bytes=None, message=message)

    first = shape("mat1 and mat2 shapes cannot be multiplied (8x128 and 256x64)")
    assert points("message", score_failures(first, shape(first.message.replace("8x128", "32x96")))) == 20
    assert points("message", score_failures(first, shape("The size of tensor a (3) must match"))) == 0
    assert points("message", score_failures(shape(""), shape(""))) == 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no file '/a/b.png'", "no file '/c/d/e.jpg'"),
        ("at 0x7f00ab", "at 0x11ffcc"),
        ("shape [2, 3]", "shape [64, 128]"),
        ("got 1.5e+10 at step 3", "got 2.25e+10 at step 1,004"),
    ],
)
def test_numbers_and_quotations_are_no_words(one, other):
    assert shape_of(one) == shape_of(other)
    assert shape_of(one) != shape_of("something else")


FACTS = {
    "git": {"status": "available", "commit": "a" * 40, "patch": "sha256:1", "dirty": True},
    "dataset": {"fingerprint": "sha256:9"},
    "environment": {"packages": {"torch": "2.4", "numpy": "2.1", "a": "1", "b": "1"}},
    "argv": ["train.py", "--fast"],
}
CONFIG = {"batch": 8, "optimizer": {"lr": 0.1, "name": "adam"}, "flag": True}
FAILED = Side(CONFIG, FACTS, {"kind": "cuda", "name": "H200"})
SUCCESSES = [
    ("config", {"config": {**CONFIG, "batch": 4}}, 37),  # 3 of 4, rounded down
    ("config", {"config": {**CONFIG, "flag": 1}}, 37),
    ("config", {"config": {}}, 0),
    ("code", {"facts": {**FACTS, "git": {**FACTS["git"], "patch": "sha256:2"}}}, 8),
    ("code", {"facts": {**FACTS, "git": {**FACTS["git"], "commit": "b" * 40}}}, 0),
    ("code", {"facts": {**FACTS, "git": {"status": "unavailable", "reason": "x"}}}, 0),
    ("data", {"facts": {**FACTS, "dataset": {"fingerprint": "sha256:8"}}}, 0),
    ("packages", {"facts": {**FACTS, "environment": {"packages": {"torch": "2.5", "numpy": "2.1", "a": "1"}}}}, 5),
    ("command", {"facts": {**FACTS, "argv": ["train.py"]}}, 0),
    ("device", {"device": {"kind": "cuda", "name": "A100"}}, 5),
    ("device", {"device": None}, 0),
]


@pytest.mark.parametrize(("name", "changes", "expected"), SUCCESSES)
def test_each_part_of_a_success_earns_what_the_table_says(name, changes, expected):
    assert total(score_success(FAILED, FAILED)) == 100
    parts = score_success(FAILED, replace(FAILED, **changes))
    assert points(name, parts) == expected
    assert all(part.points == part.possible for part in parts if part.name != name)


def test_the_table_in_the_docstring_is_the_table_in_the_code():
    from watcherml.forensics import similar

    told = {}
    for line in similar.__doc__.splitlines():
        words = line.split()
        if line.startswith("    ") and len(words) > 2 and words[1].isdigit():
            told.setdefault(words[0], []).append(int(words[1]))
    coded = {}
    for parts in (score_failures(NOW, NOW), score_success(FAILED, FAILED)):
        for part in parts:
            coded.setdefault(part.name, []).append(part.possible)
    assert {name: sorted(sizes) for name, sizes in told.items()} == {n: sorted(s) for n, s in coded.items()}


@pytest.mark.parametrize(
    ("config", "model"),
    [
        ({"model": "a"}, "a"), ({"model": {"name": "b"}}, "b"), ({"model_name_or_path": "c"}, "c"),
       ({"arch": "d"}, "d"),

        ({"model": 5}, ""), ([], ""), ({"model": {"name": {"x": 1}}}, ""),
    ],
)  # fmt: skip
def test_the_model_is_found_under_its_usual_names(config, model):
    assert model_of(config) == model
