"""What differs between two runs, area by area, and in which order it is looked at."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from watcherml.forensics.difference import AREAS, Side, difference
from watcherml.forensics.suspicion import ROWS, judge

OOM = "cuda_out_of_memory"
FACTS = {
    "git": {"status": "available", "commit": "a" * 40, "branch": "main", "patch": "sha256:1", "dirty": True},
    "dataset": {"fingerprint": "sha256:9", "files": 3, "bytes": 100, "path": "/data/a"},
    "environment": {
        "python": "3.11.7", "implementation": "cpython", "system": "Linux", "machine": "x86_64",
        "packages": {"torch": "2.4.0", "zope.interface": "6.0"}, "sources": {},
    },
    "machine": {
        "system": "Linux", "cpu_count": 8, "memory_bytes": 2**34,
        "nvml": {
            "status": "available", "driver": "550.1",
            "gpus": [{"index": 0, "uuid": "GPU-1", "name": "A100", "total_bytes": 80 * 2**30}],
        },
    },
    "argv": ["train.py"],
}  # fmt: skip
PATCH = (
    "diff --git a/train.py b/train.py\nindex 1..2 100644\n--- a/train.py\n+++ b/train.py\n@@ -1 +1,2 @@\n x=1\n+y=2\n"
)
BASE = Side({"batch_size": 8, "lr": 0.1}, FACTS, {"kind": "cuda", "name": "A100"}, 100,
            [("loss", 1, 2.0), ("loss", 2, 1.0)], (), PATCH)  # fmt: skip


def facts(**changes):
    return {**FACTS, **{key: {**FACTS[key], **value} for key, value in changes.items()}}


def found(before, after, **options):
    made = difference(before, after, options.pop("failure_class", OOM), **options)
    return {(one.area, one.path): (one.kind, one.before, one.after) for one in made.changes}


def test_a_run_does_not_differ_from_itself():
    made = difference(BASE, BASE, OOM)
    assert made.changes == () and made.unknown == () and made.left_out == 0


CASES = [
    ({"config": {"batch_size": 64, "lr": 0.1}}, ("config", "batch_size"), ("changed", 8, 64)),
    ({"config": {"batch_size": 8}}, ("config", "lr"), ("removed", 0.1, None)),
    ({"config": {"batch_size": 8, "lr": 0.1, "n": {"x": None}}}, ("config", "n"), ("added", None, {"x": None})),
    ({"facts": facts(git={"commit": "b" * 40})}, ("code", "commit"), ("changed", "a" * 40, "b" * 40)),
    ({"facts": facts(git={"branch": "dev"})}, ("code", "branch"), ("changed", "main", "dev")),
    (
        {"patch": PATCH.replace("+y=2\n", "+y=2\n+z=3\n")},
        ("code", "train.py"),
        ("changed", "+1 -0 lines, not committed", "+2 -0 lines, not committed"),
    ),
    ({"patch": ""}, ("code", "train.py"), ("changed", "+1 -0 lines, not committed", "as committed")),
    ({"facts": {**FACTS, "argv": ["train.py", "-x"]}}, ("code", "argv"), ("changed", "train.py", "train.py -x")),
    ({"facts": facts(dataset={"fingerprint": "x"})}, ("data", "fingerprint"), ("changed", "sha256:9", "x")),
    ({"facts": facts(dataset={"path": "/b"})}, ("data", "path"), ("changed", "/data/a", "/b")),
    (
        {"facts": facts(environment={"packages": {"torch": "2.5.0", "zope.interface": "6.0"}})},
        ("packages", "torch"),
        ("changed", "2.4.0", "2.5.0"),
    ),
    (
        {"facts": facts(environment={"packages": {"torch": "2.4.0"}})},
        ("packages", "zope.interface"),
        ("removed", "6.0", None),
    ),
    (
        {"facts": facts(environment={"sources": {"torch": "editable"}})},
        ("packages", "torch"),
        ("changed", "2.4.0", "2.4.0 (editable)"),
    ),
    ({"facts": facts(environment={"python": "3.12.1"})}, ("packages", "python"), ("changed", "3.11.7", "3.12.1")),
    ({"facts": facts(machine={"cpu_count": 4})}, ("hardware", "cpu_count"), ("changed", 8, 4)),
    (
        {"facts": facts(machine={"nvml": {**FACTS["machine"]["nvml"], "driver": "560"}})},
        ("hardware", "driver"),
        ("changed", "550.1", "560"),
    ),
    ({"device": {"kind": "cuda", "name": "L4"}}, ("hardware", "device.name"), ("changed", "A100", "L4")),
    ({"last_step": 7}, ("metrics", "last step"), ("changed", 100, 7)),
    ({"points": [("loss", 1, 2.0), ("loss", 2, 9.0)]}, ("metrics", "loss at step 2"), ("changed", 1.0, 9.0)),
    (
        {"points": [("loss", 1, 2.0), ("loss", 2, math.nan)]},
        ("metrics", "loss, values not finite"),
        ("changed", "none", "1 of 2, the first at step 2"),
    ),
    (
        {"points": [("loss", 1, 2.0), ("loss", 2, math.inf)]}, ("metrics", "loss at step 2"), ("changed", 1.0, "inf"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "where", "expected"), CASES, ids=[".".join(case[1]) for case in CASES])
def test_every_area_names_what_differs(changes, where, expected):
    assert found(BASE, replace(BASE, **changes))[where] == expected


def test_another_card_of_the_same_kind_is_no_difference():
    nvml = {**FACTS["machine"]["nvml"], "gpus": [{**FACTS["machine"]["nvml"]["gpus"][0], "uuid": "GPU-2"}]}
    assert found(BASE, replace(BASE, facts=facts(machine={"nvml": nvml}))) == {}


def test_what_only_one_run_knows_is_said_and_is_no_difference():
    bare = Side(BASE.config, {"git": {"status": "unavailable", "reason": "no repository"}})
    made = difference(BASE, bare, OOM)
    assert made.changes == ()
    said = " | ".join(made.unknown)
    for words in (
        "code: only the first",
        "data: only the first",
        "packages: only the first",
        "metrics: only the first",
    ):
        assert words in said
    assert any("neither run has a git commit" in one for one in difference(bare, bare).unknown)


def test_a_patch_that_was_not_read_is_not_taken_for_none():
    made = difference(BASE, replace(BASE, patch=None), OOM)
    assert made.changes == () and "too large" in made.unknown[0]


CELL = "import torch\nmodel = Net(128)\nloader = make(batch_size=16)\nfor x in loader:\n    step(x)\n"


def test_a_changed_cell_is_named_with_its_lines():
    edited = CELL.replace("16", "256")
    for name in ("abc", "in-3-0123"):  # an id that stays with the cell, and one that we made from its source
        before = replace(BASE, cells=[("x", "import os"), (name, CELL)])
        after = replace(BASE, cells=[("x", "import os"), ("abc" if name == "abc" else "in-9-77", edited)])
        changes = found(before, after)
        assert list(changes) == [("cells", "cell 'import torch'")]
        assert changes["cells", "cell 'import torch'"][1:] == (
            "loader = make(batch_size=16)", "loader = make(batch_size=256)",
        )  # fmt: skip


def test_cells_that_ran_again_and_magics_are_no_difference():
    before = replace(BASE, cells=[("a", CELL)])
    after = replace(BASE, cells=[("a", CELL), ("b", CELL), ("c", "%watcher status"), ("d", "print('something new')")])
    assert found(before, after) == {}


def test_the_most_suspicious_comes_first_and_the_rest_is_counted():
    after = replace(BASE, config={"batch_size": 64, "lr": 0.2, "run_name": "b"}, facts=facts(git={"commit": "b" * 40}))
    paths = [one.path for one in difference(BASE, after, OOM).changes]
    assert paths == ["batch_size", "commit", "run_name", "lr"]
    assert difference(BASE, after, "nan_or_exploding_loss").changes[0].path == "lr"
    short = difference(BASE, after, OOM, most=2)
    assert [one.path for one in short.changes] == ["batch_size", "commit"] and short.left_out == 2


def test_long_values_are_described_and_hostile_ones_are_kept_whole():
    made = found(
        replace(BASE, config={}), replace(BASE, config={"a": "x" * 5_000, "b": list(range(900)), "c\x00": "\x1b"})
    )
    assert "5,000 characters" in made["config", "a"][2] and len(made["config", "a"][2]) < 260
    assert made["config", "b"][2] == "a list of 900 entries"
    assert made["config", "c\x00"][2] == "\x1b"


MEMORY = [
    ("batch_size", 8, 64, 90), ("batch_size", 64, 8, 22), ("batch_size", 100, 101, 45), ("train.micro_batch", 1, 2, 90),
    ("eval_batch_size", 8, 64, 30), ("use_batch_norm", False, True, 6), ("max_seq_length", 512, 4096, 88),
    ("gradient_checkpointing", True, False, 80), ("gradient_checkpointing", False, True, 20),
    ("precision", "bf16-mixed", "fp32", 75), ("precision", "fp32", "bf16", 18), ("dtype", "torch.half", "float32", 75),
    ("fp16", True, False, 75), ("optimizer.name", "sgd", "adam", 60), ("optimizer.lr", 0.1, 0.2, 2), ("seed", 1, 2, 6),
    ("model.hidden_size", 512, 4096, 78), ("model.layers.3.width", 4, 8, 78), ("run_name", "a", "b", 3),
    ("data.num_workers", 0, 8, 20), ("something", 1, 2, 20), ("betas", [0.9, 0.95], [0.9, 0.99], 2),
]  # fmt: skip


@pytest.mark.parametrize(("path", "before", "after", "points"), MEMORY)
def test_direction_counts_when_memory_ran_out(path, before, after, points):
    assert judge("config", path, before, after, "memory", "forward")[0] == points


KINDS = [
    ("nan", "config", "lr", 92), ("nan", "config", "precision", 88), ("shape", "config", "num_classes", 92),
    ("file", "config", "data.root", 92), ("worker", "config", "num_workers", 92), ("device", "config", "device", 92),
    ("build", "packages", "torch", 92), ("build", "packages", "nvidia-nccl", 92), ("build", "packages", "rich", 30),
    ("memory", "packages", "rich", 4), ("memory", "hardware", "device.name", 86), ("nan", "data", "fingerprint", 72),
    ("build", "hardware", "driver", 90), ("other", "code", "commit", 58), ("memory", "metrics", "loss at step 3", 10),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "area", "path", "points"), KINDS)
def test_the_kind_of_failure_decides_what_is_suspicious(kind, area, path, points):
    assert judge(area, path, None, "x", kind)[0] == points


def test_evaluation_keys_count_where_evaluation_failed():
    assert judge("config", "eval_batch_size", 8, 64, "memory", "evaluation")[0] == 90
    assert judge("config", "eval_batch_size", 8, 64, "memory", "unknown")[0] == 45


def test_every_row_says_why_and_every_area_ends_with_a_row_for_the_rest():
    assert len({row.id for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert row.why and all(0 <= points <= 100 for points in (*row.points.values(), row.elsewhere))
    for area in AREAS:
        last = [row for row in ROWS if row.areas == area][-1]
        assert not last.words.pattern, area


def test_two_starts_of_a_kernel_are_no_other_command():
    kernel = [
        replace(BASE, facts={**FACTS, "argv": ["/env/ipykernel_launcher.py", "-f", f"/run/kernel-{one}.json"]})
        for one in (1, 2)
    ]
    assert found(*kernel) == {}
