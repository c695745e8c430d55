"""Earlier runs and comparisons in every face: the same facts, nothing that renders, the next step first."""

from __future__ import annotations

import json
import re

import pytest

from watcherml.forensics.neighbours import Change, Compared, Comparison, Difference, Nearest, Neighbours, Part, Similar
from watcherml.report.advice import next_step
from watcherml.report.documents import comparison_document, failure_document
from watcherml.report.html import html_compare, html_failure
from watcherml.report.markdown import markdown_failure
from watcherml.report.markdown_compare import markdown_compare
from watcherml.report.page import page
from watcherml.report.text import text_compare, text_failure

HOSTILE = ("<script>alert(1)</script>", "a|b\n# c", "\x1b[31m\u202e", "x" * 200, "`*_[]")


def changes(text="{}", count=3):
    rows = [
        Change("config", text.format("batch_size"), "changed", 16, 64, 90, "batch"),
        Change("packages", text.format("torch"), "changed", text.format("2.4.0"), text.format("2.5.0"), 45, "torch"),
        Change("config", text.format("run_name"), "added", None, {text.format("a"): text.format("b")}, 3, "label"),
        Change("metrics", text.format("loss at step 12"), "changed", 0.123456789, "nan", 10, "at-step"),
    ]
    return tuple(rows[index % 4] for index in range(count))


def neighbours(text="{}", count=4):
    part = Part("config", 40, 50, text.format("4 of 5 values are the same"))
    return Neighbours(
        similar=(
            Similar("run-3", text.format("demo"), 1_772_000_000.0, text.format("CUDA ran out of memory."), 75, (part,),
                    "imported", text.format("a smaller batch"), "recovery-1"),
        ),
        nearest=Nearest("run-1", 1_772_000_000.0, 99, 66, (part,),
                        Difference(changes(text, count), 2, (text.format("data: neither run has one"),), 1)),
        failures_looked_at=4, successes_looked_at=3, score_version=1,
    )  # fmt: skip


def comparison(text="{}", count=4, **options):
    first = Compared("run-1", text.format("demo"), "success", "here", 1_772_000_000.0, 99, "", "")
    second = Compared("run-2", text.format("demo"), "failed", "imported", 1_772_000_000.0, 12, "cuda_out_of_memory",
                      text.format("CUDA ran out of memory."))  # fmt: skip
    found = Difference(changes(text, count), options.get("left_out", 0), (text.format("data: none"),), 1)
    return Comparison(first, second, "run-2", found)


FACES = {
    "text": lambda make, text: text_failure(make.capsule(text).replace(neighbours=neighbours(text))),
    "markdown": lambda make, text: markdown_failure(make.capsule(text).replace(neighbours=neighbours(text))),
    "html": lambda make, text: html_failure(make.capsule(text).replace(neighbours=neighbours(text))),
    "compare-text": lambda make, text: text_compare(comparison(text)),
    "compare-markdown": lambda make, text: markdown_compare(comparison(text)),
    "compare-html": lambda make, text: html_compare(comparison(text)),
}


@pytest.mark.parametrize("face", FACES)
def test_every_face_says_what_changed_and_what_was_alike(make, face):
    text = " ".join(FACES[face](make, "{}").replace("\\", "").split())
    for fact in ("batch_size", "16", "64", "2.4.0", "2.5.0", "90", "0.123457", "nan", "run-1", "data: n"):
        assert fact in text, fact
    if not face.startswith("compare"):
        for fact in (
            "run-3",
            "75 of 100",
            "recorded elsewhere",
            "a smaller batch",
            "watcher recovery recovery-1",
            "40/50",
        ):
            assert fact in text, fact
        assert "2 less suspicious changes" in text or "2 more changes" in text
    else:
        assert "run-2" in text and "recorded elsewhere" in text


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("hostile", HOSTILE)
def test_nothing_hostile_reaches_a_face(make, face, hostile):
    text = FACES[face](make, hostile.replace("{", "").replace("}", "") + "{}")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", text)
    if "html" in face:
        assert "<script" not in text
    if "markdown" in face:
        text = text.split("## Traceback")[0]  # a fence, in which nothing renders
        assert "<script" not in text and "\n# c" not in text
        tables = [line for line in text.splitlines() if line.startswith("| 90")]
        assert tables and all(len(re.findall(r"(?<!\\)\|", line)) == 6 for line in tables)


def test_a_capsule_of_before_has_no_such_section(make):
    for text in (text_failure(make.capsule()), markdown_failure(make.capsule()), html_failure(make.capsule())):
        assert "last worked" not in text


SENTENCES = [
    (Neighbours(), "No earlier run of this project succeeded"),
    (Neighbours(successes_looked_at=3), "No earlier success of this project is like this run"),
    (Neighbours(problem="Earlier runs could not be searched: x"), "could not be searched: x"),
]


@pytest.mark.parametrize(("found", "words"), SENTENCES)
def test_what_was_not_found_is_said(make, found, words):
    capsule = make.capsule().replace(neighbours=found)
    assert words in text_failure(capsule) and words in html_failure(capsule) and words in markdown_failure(capsule)


def test_text_keeps_to_its_width_whatever_the_names(make):
    long = "n" * 200
    capsule = make.capsule().replace(neighbours=neighbours(long + "{}"))
    for text in (text_compare(comparison(long + "{}")), text_failure(capsule)):
        lines = text.split("Traceback\n")[0].splitlines()
        assert max(map(len, lines)) <= 200  # a word of 200 letters is not torn
        assert all(len(line) <= 96 for line in lines if re.match(r" +\d+  ", line))


def test_many_changes_are_folded_and_counted(make):
    many = comparison(count=50, left_out=7)
    assert "more change" in html_compare(many) and html_compare(many).count("<details") == 1
    assert "… and 7 less suspicious changes." in text_compare(many)
    assert len(comparison_document(many)["changes"]) == 50


def test_a_failure_that_is_not_about_memory_shows_no_memory_and_no_diagnosis(make):
    from watcherml.forensics.capsule import Diagnosis, MemoryFacts

    nothing = Diagnosis("insufficient_evidence", None, "unknown", (), (), (), (), 1, "This is not about device memory.")
    capsule = make.capsule(facts=MemoryFacts(), found=nothing)
    capsule = capsule.replace(failure=capsule.failure.replace(class_="tensor_shape_mismatch"))
    for text in (text_failure(capsule), markdown_failure(capsule), html_failure(capsule)):
        assert "not about device memory" not in text and "insufficient evidence" not in text
        assert "shortfall" not in text.lower()


ADVICE = [
    ("nan_or_exploding_loss", "", "learning rate"),
    ("tensor_shape_mismatch", "matmul", "train.py:31 in train"),
    ("tensor_shape_mismatch", "collate", "pad or crop"),
    ("missing_file_or_dataset_path", "errno2", "working directory"),
    ("dataloader_worker_failure", "killed", "num_workers=0"),
    ("device_mismatch", "same_device_arg", "one device"),
    ("dependency_or_cuda_compatibility", "module_not_found", "install"),
    ("unclassified", "host_oom", "not the GPU's"),
    ("unclassified", "name_error", "cell"),
    ("unclassified", "", "train.py:31 in train"),
    ("unclassified", "shared_memory_full", "/dev/shm"),
    ("unclassified", "no_such_device", "map_location"),
    ("dependency_or_cuda_compatibility", "no_driver", "nvidia-smi"),
    ("missing_file_or_dataset_path", "empty_dataset", "no samples"),
    ("simulated_out_of_memory", "", "a smaller micro-batch"),
]


@pytest.mark.parametrize(("kind", "subkind", "words"), ADVICE)
def test_every_class_has_a_next_step_in_the_first_lines_of_every_face(make, kind, subkind, words):
    capsule = make.capsule()
    capsule = capsule.replace(failure=capsule.failure.replace(class_=kind, subkind=subkind))
    step = next_step(capsule)
    assert step.startswith("Next: ") and step.endswith(".") and words in step and "{" not in step
    flat = " ".join(text_failure(capsule).split())
    assert flat.index("Next: ") < 300
    assert "Next: " in html_failure(capsule)[:1_500] and "Next: " in markdown_failure(capsule)[:400]
    assert failure_document(capsule)["next_step"] == step


def test_every_class_of_the_classifier_has_a_next_step(make):
    from typing import get_args

    from watcherml.forensics.matching import FailureClass

    for kind in get_args(FailureClass):
        capsule = make.capsule()
        step = next_step(capsule.replace(failure=capsule.failure.replace(class_=kind, where="")))
        assert step.startswith("Next: ")


def test_what_changed_since_it_worked_stands_in_the_head(make):
    capsule = make.capsule().replace(neighbours=neighbours())
    assert next_step(capsule).endswith(". Since it last worked: batch_size 16 → 64.")
    assert html_failure(capsule).index("Since it last worked") < html_failure(capsule).index("Classified by")


def test_a_metric_is_an_effect_and_stands_in_the_table_only(make):
    only = Change("metrics", "loss, values not finite", "changed", "none", "1 of 9", 60, "not-finite")
    found = Difference((only,), 0, (), 1)
    near = neighbours().nearest.replace(difference=found)
    capsule = make.capsule().replace(neighbours=neighbours().replace(nearest=near))
    assert "Since it last" not in next_step(capsule) and "none of them suspicious" in html_failure(capsule)
    assert "loss, values not finite" in html_failure(capsule)


def test_a_comparison_of_two_runs_that_went_well_speaks_of_no_failure():
    harmless = Difference((changes()[2],), 0, (), 1)
    failed = comparison().replace(difference=harmless)
    assert "none of them suspicious for a failure like this" in text_compare(failed).replace("\n", " ")
    well = failed.replace(judged_by="", second=failed.second.replace(status="success", failure_class="", headline=""))
    for text in (text_compare(well), markdown_compare(well), html_compare(well)):
        assert "1 fact changed." in " ".join(text.split()) and "failure like this" not in text


def test_a_run_of_an_older_store_is_named_as_such():
    found = comparison()
    found = found.replace(first=found.first.replace(origin="0.1"))
    for text in (text_compare(found), markdown_compare(found), html_compare(found)):
        assert "recorded by WatcherML 0.1" in " ".join(text.split())


def test_the_documents_hold_the_same_facts(make):
    document = json.loads(json.dumps(comparison_document(comparison()), allow_nan=False))
    assert document["kind"] == "comparison" and document["changes"][0]["suspicion"] == 90
    added = next(one for one in document["changes"] if one["kind"] == "added")
    assert "before" not in added and added["after"] == {"a": "b"}
    failure = failure_document(make.capsule().replace(neighbours=neighbours()))
    assert "It last worked in run run-1" in failure["since_it_worked"] and "run-3 (75 of 100)" in failure["seen_before"]
    assert failure["capsule"]["neighbours"]["nearest"]["run_id"] == "run-1"
    assert failure_document(make.capsule())["since_it_worked"] == ""


def test_a_page_is_one_file_that_fetches_nothing(make):
    text = page("<b>run</b>", html_failure(make.capsule()))
    assert text.startswith("<!doctype html>") and "<title>&lt;b&gt;run&lt;/b&gt;</title>" in text
    assert "default-src 'none'" in text and not re.search(r"(src|href)=\"(?!data:)", text)
