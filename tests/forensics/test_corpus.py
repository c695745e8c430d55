"""The collected error texts of frameworks: labels of the classifier, figures of the parser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from watcherml.forensics.classify import classify_text
from watcherml.forensics.oom_message import parse

CORPUS = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "data" / "failures.jsonl").read_text(encoding="utf-8").splitlines()
]
FACTS = (
    "tried_bytes",
    "total_bytes",
    "free_bytes",
    "allocated_bytes",
    "reserved_bytes",
    "reserved_unallocated_bytes",
    "process_in_use_bytes",
    "gpu_index",
)
# Debatable records that we label otherwise, with the reason.
DISAGREED = {
    "F077-73ffd962": "unclassified",  # "NCCL error" alone: that memory ran out stands only in a log we do not have
    "F218-6efbf931": "unclassified",  # "Ran out of input" without frames: a damaged pickle file says the same
}


def identify(record: dict) -> str:
    return record["id"]


def test_the_corpus_is_whole() -> None:
    assert len(CORPUS) == 153
    assert sum(not record["debatable"] for record in CORPUS) == 118


@pytest.mark.parametrize("record", CORPUS, ids=identify)
def test_a_collected_text_gets_its_label(record: dict) -> None:
    found = classify_text(record["exception_type"], record["message"])
    expected = DISAGREED.get(record["id"], record["label"])
    assert found.failure_class == expected, f"{found.rule}: {found.matched!r}"
    assert found.exception_type == record["exception_type"]
    assert bool(found.matched) == (found.rule != "none")


def test_only_debatable_records_are_disagreed_with() -> None:
    by_id = {record["id"]: record for record in CORPUS}
    for name, label in DISAGREED.items():
        assert by_id[name]["debatable"] and by_id[name]["label"] != label


def test_no_other_failure_is_called_cuda_out_of_memory() -> None:
    called = {
        record["id"]
        for record in CORPUS
        if classify_text(record["exception_type"], record["message"]).failure_class == "cuda_out_of_memory"
    }
    meant = {record["id"] for record in CORPUS if record["label"] == "cuda_out_of_memory"}
    assert called <= meant
    assert meant - called == {"F077-73ffd962"}


def test_none_of_the_texts_is_from_our_own_device() -> None:
    for record in CORPUS:
        assert not parse(record["message"]).simulated


@pytest.mark.parametrize("record", [record for record in CORPUS if record["expected_facts"] is not None], ids=identify)
def test_the_figures_of_a_collected_text(record: dict) -> None:
    found = parse(record["message"])
    for name in FACTS:
        stated, read = record["expected_facts"].get(name), getattr(found, name)
        if stated is None:
            assert read is None, name
        else:
            assert read is not None and abs(read - stated) <= 2, name


@pytest.mark.parametrize("record", [record for record in CORPUS if record["expected_facts"] is None], ids=identify)
def test_a_text_about_something_else_states_no_device_figures(record: dict) -> None:
    if record["subkind"] == "xpu_oom":
        return  # the same grammar on another vendor's device
    found = parse(record["message"])
    assert [name for name in FACTS if getattr(found, name) is not None] == []


@pytest.mark.parametrize("record", CORPUS, ids=identify)
def test_a_printed_traceback_changes_no_label(record: dict) -> None:
    kind, message = record["exception_type"], record["message"]
    frames = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    train()\n'
    if record["subkind"] == "worker_start_pickle":
        return  # decided by the frames, see test_classify
    assert classify_text(kind, message, f"{frames}{kind}: {message}\n") == classify_text(kind, message)
