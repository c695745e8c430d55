"""The text, Markdown and JSON faces, the units and the glossary: facts, not whole pages."""

import json
import re
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import watcherml
from watcherml.contract.budget import RecoveryBudget
from watcherml.forensics.capsule import MemoryFacts
from watcherml.forensics.evidence import NAMES
from watcherml.protocol.request import Role
from watcherml.protocol.result import Outcome
from watcherml.protocol.verdict import Ending, Status
from watcherml.report import documents, glossary, safe, terms, units
from watcherml.report.changes import differences
from watcherml.report.checks import grouped, observed_words
from watcherml.report.markdown import markdown_failure, markdown_run
from watcherml.report.text import (
    campaigns_table,
    events,
    failures_table,
    runs_table,
    text_failure,
    text_plan,
    text_progress,
    text_run,
    text_verdict,
)

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (None, "not stated"),
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (64_172_851, "61.2 MiB"),
        (2**30 - 1, "1.00 GiB"),
        (14 * 2**30, "14.00 GiB"),
        (3 * 2**50, "3.00 PiB"),
        (3 * 2**62, "12288.00 PiB"),
        (-9 * 2**20, "-9.0 MiB"),
        (NAN, "not stated"),
    ],
)
def test_bytes_in_words(size, words):
    assert units.format_bytes(size) == words


@given(st.integers(0, 2**53 - 1))
def test_bytes_never_show_1024_of_a_unit(size):
    number, unit = units.format_bytes(size).split(" ")
    assert float(number) < 1024
    scale = {"byte": 1, "bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}[unit]
    assert float(number) * scale == pytest.approx(size, rel=0.06)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "not stated"), (0, "0 s"), (0.42, "0.42 s"), (0.999, "1.0 s"), (9.96, "10 s"), (59.6, "1 min"),
        (72, "1 min 12 s"), (3599.9, "1 h"), (7500, "2 h 05 min"), (86_400 * 3 + 4 * 3600, "3 d 4 h"), (-3, "-3.0 s"),
        (INF, "not stated"),
    ],
)  # fmt: skip
def test_seconds_in_words(seconds, words):
    assert units.format_seconds(seconds) == words


@pytest.mark.parametrize(
    ("value", "words"), [(NAN, "NaN"), (INF, "infinity"), (-INF, "-infinity"), (0.25, "0.25"), (1e-9, "1e-09")]
)
def test_numbers_that_are_not_finite_have_names(value, words):
    assert units.format_number(value) == words


@pytest.mark.parametrize(
    ("at", "words"),
    [(0, "1970-01-01 00:00:00 UTC"), (1_772_366_405.9, "2026-03-01 12:00:05 UTC"), (-1, "1969-12-31 23:59:59 UTC"),
     (1e300, "not stated"), (NAN, "not stated")],
)  # fmt: skip
def test_moments_are_utc(at, words):
    assert units.format_time(at) == words


@pytest.mark.parametrize(
    ("raw", "line"),
    [("a\nb", "a\\nb"), ("\x1b[31mred", "\\x1b[31mred"), ("a\u202eb", "a\\u202eb"), ("\ud800", "\\ud800"),
     ("\x00\x7f\x9b", "\\x00\\x7f\\x9b"), ("a\tb", "a b"), ("ok é 日本", "ok é 日本")],
)  # fmt: skip
def test_one_line_shows_what_could_do_harm(raw, line):
    assert safe.one_line(raw) == line


@given(st.text(max_size=300), st.integers(1, 80))
def test_one_line_keeps_its_limit_and_can_be_encoded(text, limit):
    line = safe.one_line(text, limit)
    assert len(line) <= limit
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", line.encode().decode())


@given(st.recursive(st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12))  # fmt: skip
def test_a_shown_configuration_reads_back_equal(value):
    assert json.loads(safe.json_text(value)) == value


FACES = {
    "failure": lambda make, text: text_failure(make.capsule(text)),
    "plan": lambda make, text: text_plan(make.plan(text)),
    "progress": lambda make, text: text_progress(
        make.plan(text), make.trials(text), "running", text.format("P1 runs.")
    ),
    "verdict": lambda make, text: text_verdict(make.verdict(text), make.plan(text), make.finished(text)),
    "run": lambda make, text: text_run(make.run_row(text), make.metrics(), make.samples(), make.artifacts(text)),
}


@pytest.mark.parametrize(
    ("face", "start"),
    [
        ("failure", "The forward pass needed 10.6 MiB more than the budget has. Next: prepare a recovery"),
        ("plan", "4 changes proposed, 3 may run. Next: start the campaign, or first decide on the 1"),
        ("progress", "P1 runs."),
        ("verdict", "Verified on the simulated device: P1 passed two fresh runs"),
        ("run", "Run tomato-disease-20260301-7f3kq2 failed after 41 s at step 119. Next: read its failure"),
    ],
)
def test_first_line_says_what_happened(make, face, start):
    assert FACES[face](make, "{}").startswith(start)


@pytest.mark.parametrize("face", FACES)
def test_every_face_says_simulated_and_is_deterministic(make, face):
    text = FACES[face](make, "{}")
    assert "simulated" in text.lower()
    assert text == FACES[face](make, "{}")
    assert text.endswith("\n")


@pytest.mark.parametrize("face", FACES)
def test_no_value_can_move_the_cursor(make, face):
    text = FACES[face](make, "\x1b]0;evil\x07\r\u202e\u2066{}\x9b2J\n" + "x" * 150)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


@pytest.mark.parametrize("color", [False, True])
def test_colour_only_where_it_is_asked_for(make, color):
    text = text_plan(make.plan(), color=color)
    assert ("\x1b[" in text) is color
    assert re.sub(r"\x1b\[\d+m", "", text) == text_plan(make.plan())


def test_failure_names_memory_causes_and_missing_evidence(make):
    text = text_failure(make.capsule(), {"sentence": "Gave back 71 MiB.", "kept": [
        {"name": "model", "bytes": 2**20, "what": "a module"}]})  # fmt: skip
    for fact in (
        "allocated by PyTorch: 90.6 MiB", "free: 5.4 MiB", "requested: 16.0 MiB", "10.6 MiB were missing",
        "C21 activations of one batch, 71.0 MiB", "C4 another process", "missing: no GPU", "train.py:31 in train",
        "Gave back 71 MiB.", "model: 1.0 MiB, a module", '"batch_size": 64',
    ):  # fmt: skip
        assert fact in text
    assert all(key in text for key in NAMES)


def test_failure_without_a_limit_still_lists_what_was_stated(make):
    text = text_failure(make.capsule(facts=MemoryFacts(requested_bytes=2**21)))
    assert re.search(r"requested +2\.0 MiB", text)
    assert "Memory\n" not in text_failure(make.capsule(facts=MemoryFacts()))


def test_plan_shows_states_predictions_and_what_was_left_out(make):
    text = text_plan(make.plan(), authorized={"P4"}, rejected={"P3", "P1"})
    assert "P4  Expandable allocator segments  [approved]" in text
    assert "P1  Micro-batch 32, accumulate 2  [rejected]" in text
    assert "Predicted peak  not predicted" in text
    assert "49.0 MiB of 96.0 MiB" in text
    assert "environment PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in text
    assert "optimizer bits: The optimizer's state is 4 % of the shortfall." in text
    assert "validation_loss at most 0.45" in text


def test_the_budget_of_the_product_description_reads_as_six_trials(make):
    budget = RecoveryBudget(max_trials=6, max_probe_trials=3, max_full_trials=1, trial_timeout_seconds=60)
    plan = make.plan(budget=budget)
    assert terms.worst_case_trials(plan) == 6
    assert terms.worst_case_seconds(plan) == 6 * 65
    assert "1 control, up to 2 probes, 1 full trial, 2 confirmations" in terms.budget_sentence(plan)


def test_control_sentence_says_what_it_means(make):
    assert "at most 500 steps" in terms.control_sentence(make.plan())
    assert "turned it off" in terms.control_sentence(make.plan(control=False))
    one = make.plan(budget=RecoveryBudget(max_trials=4, max_probe_trials=1))
    assert "straight to their full trial" in terms.control_sentence(one)


def test_plan_without_proposals_says_so(make):
    assert text_plan(make.plan(offered=())).startswith("No change is proposed: nothing in this configuration")


@pytest.mark.parametrize(
    ("authorized", "rejected", "words"),
    [
        ((), (), "Next: start the campaign, or first decide on the 1"),
        (("P4",), (), "4 may run. Next: start the campaign."),
        ((), ("P1", "P2", "P3"), "none may run yet. Next: approve or reject it."),
        ((), ("P1", "P2", "P3", "P4"), "all rejected. Nothing would be tried."),
        (("P4",), ("P1", "P2", "P3", "P4"), "all rejected"),
    ],
)
def test_plan_headline_follows_the_decisions(make, authorized, rejected, words):
    assert words in terms.plan_headline(make.plan(), authorized, rejected)


def test_stages_to_come_are_listed_until_the_campaign_ends(make):
    running = text_progress(make.plan(), make.trials(), "running", "P1 runs.")
    assert "confirmation: up to 2 trials, not started" in running
    assert "control: not started" not in running
    assert "not started" not in text_progress(make.plan(), make.trials(), "ended", "Over.")
    assert "control: not started" in text_progress(make.plan(), [], "prepared", "")


def test_verdict_shows_change_checks_and_a_configuration_that_parses(make):
    text = text_verdict(make.verdict(), make.plan(), make.finished())
    assert "batch_size: 64 → 32" in text
    assert "Checks: 8 of 8 passed" in text
    assert "at most 94371840 bytes (90.0 MiB), observed 63963136 (61.0 MiB)" in text
    assert "tomato-disease-c1-t6" in text
    copied = text.split("The whole configuration, to copy\n")[1]
    assert json.loads(copied) == make.verdict().to_data()["config"]


def test_what_did_not_pass_comes_first(make):
    verdict = make.verdict(status="not_recovered")
    assert [check.outcome for _, check in grouped(verdict.checks)[0].checks][:2] == ["fail", "missing"]
    assert observed_words("code.a", "sha256:" + "0" * 64) == "sha256:000000000000…"


@pytest.mark.parametrize("standing", ["unrecorded", "imported", "claimed_by_0.1", "something new"])
def test_only_a_verdict_on_record_here_is_simply_verified(make, standing):
    text = text_verdict(make.verdict(device_kind="cuda"), make.plan(), [], standing)
    assert not re.match(r"Verified[:.]", text)
    assert documents.verdict_document(make.verdict(), make.plan(), [], standing)["verified"] is False


def test_a_run_with_nothing_but_an_id_has_a_page(make):
    assert "Run r1 is ?" in text_run({"run_id": "r1"})
    masked = text_run({**make.run_row(), "redacted_paths": ["api.key"], "lossy_paths": ["path"]})
    assert "redacted: api.key; simplified: path" in masked
    assert "Not finite" in text_run(make.run_row(), [{"name": "loss", "step": 1, "value": NAN, "at": 0.0}])


def test_table_columns_line_up_with_wide_characters(make):
    row = {**make.run_row(), "duration_s": 41.3, "peak_device_bytes": 2**20, "device_kind": "simulated"}
    table = runs_table([row, {**row, "project": "トマト", "status": "success"}]).splitlines()
    starts = {safe.width(line[: re.search(r"failed|success|Status", line).start()]) for line in table}
    assert len(starts) == 1


@pytest.mark.parametrize("table", [runs_table, failures_table, campaigns_table, events])
def test_empty_lists_say_so_and_sparse_rows_do_not_break(table):
    assert "recorded here" in table([])
    assert table([{}]).count("\n") == 2


def test_campaigns_without_a_verdict_show_where_they_stand(make):
    assert "running" in campaigns_table([{"campaign_id": "c1", "last_change": "started"}])
    assert "not recovered" in campaigns_table([{"campaign_id": "c1", "status": "not_recovered"}])


def test_events_prefer_the_sentence(make):
    rows = [{"seq": 7, "at": make.NOW, "type": "trial_ended", "body": {"sentence": "P1 passed.", "trial_id": "t"}},
            {"seq": 8, "at": make.NOW, "type": "new_kind", "body": {"a": 1}}]  # fmt: skip
    assert re.search(r"7  2026-03-01 12:00:05 UTC  trial ended  P1 passed\.\n", events(rows))
    assert "new kind     a=1" in events(rows)


HOSTILE_MARKDOWN = "<img src=x> | `code` **b** [a](javascript:x) ```\n# head\n- {}"


def test_markdown_values_do_not_render(make):
    text = markdown_failure(make.capsule(HOSTILE_MARKDOWN), {"sentence": "<b>x</b>", "kept": []})
    outside = re.sub(r"^(`{3,})\w*\n.*?^\1$", "", text, flags=re.S | re.M)
    assert "<" not in outside.replace("&lt;", "")
    assert not re.search(r"(?<!\\)[`\[]", outside)
    assert all(line.count(" | ") == 1 for line in outside.splitlines() if line.startswith("| Where"))
    assert markdown_run(make.run_row(HOSTILE_MARKDOWN), make.metrics()).startswith("# Run tomato")


@pytest.mark.parametrize("leading", ["- x", "# x", "1. x", "+ x", "=== x"])
def test_markdown_values_start_no_list_or_heading(make, leading):
    text = markdown_failure(make.capsule(leading + " {}"))
    assert not re.search(r"^(- |# |> )?" + re.escape(leading.split(" ")[0]) + " x", text.split("## Traceback")[0], re.M)


def test_documents_are_strict_json_with_stable_keys(make):
    nasty = [{"name": "loss", "step": 1, "value": value, "at": 0.0} for value in (NAN, INF, -INF, 0.5, None)]
    made = {
        "failure": documents.failure_document(make.capsule(), {"sentence": "x"}),
        "plan": documents.plan_document(make.plan(), {"P4"}, {"P3"}),
        "progress": documents.progress_document(make.plan(), make.trials(), "running", "x"),
        "verdict": documents.verdict_document(make.verdict(), make.plan(), make.finished()),
        "run": documents.run_document({**make.run_row(), "odd": NAN, "path": Path("x")}, nasty, make.samples()),
        "runs": documents.runs_document([make.run_row()]),
        "failures": documents.failures_document([{"run_id": "r"}]),
        "campaigns": documents.campaigns_document([]),
    }
    for kind, document in made.items():
        assert document["kind"] == kind
        assert json.loads(json.dumps(document, allow_nan=False)) == document
        maker = getattr(documents, f"{kind}_document")
        assert [key for key in document if key not in (maker.__doc__ or "")] == []
    assert [point["special"] for point in made["run"]["metrics"]] == ["nan", "inf", "-inf", None, None]
    assert made["plan"]["states"] == {"P1": "automatic", "P2": "automatic", "P3": "rejected", "P4": "approved"}
    assert made["verdict"]["changes"][0] == {"path": "batch_size", "before": 64, "after": 32}
    assert made["failure"]["shortfall_bytes"] == int(10.6 * 2**20)
    assert made["progress"]["planned"][-1] == {"role": "confirmation", "at_most": 2}


def test_differences_tell_true_from_one_and_name_absent_values():
    found = differences({"a": 1, "b": {"c": 1, "d": 2}}, {"a": True, "b": {"c": 1}, "e": [1]})
    assert [(one.path, one.before, one.after) for one in found] == [
        ("a", "1", "true"), ("b.d", "2", "(none)"), ("e", "(none)", "[1]"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("role", get_args(Role)),
        ("outcome", get_args(Outcome)),
        ("verdict", get_args(Status)),
        ("evidence", tuple(NAMES)),
        ("reason", tuple(set(get_args(Ending.__annotations__["reason"]) or ()) - {"decided"})),
        ("step_source", ("marks", "optimizer", "claimed", "none")),
        ("device", ("cuda", "simulated", "none")),
        ("run_status", ("running", "success", "failed", "interrupted", "killed")),
        ("lifecycle", ("prepared", "running", "interrupted", "ended")),
    ],
)
def test_every_word_a_report_can_show_is_explained(topic, words):
    assert [word for word in words if not glossary.meaning(topic, word)] == []


def test_every_reason_the_verifier_gives_is_explained():
    source = (Path(watcherml.__file__).parent / "verdict" / "verify.py").read_text(encoding="utf-8")
    codes = set(re.findall(r'_Finding\(\s*"[a-z_]+",\s*"([a-z_]+)"', source)) | {"control_inconclusive"}
    assert "no_supported_intervention" in codes
    assert sorted(code for code in codes if not glossary.meaning("reason", code)) == []


def test_each_meaning_is_one_sentence():
    for words in glossary.GLOSSARY.values():
        for meaning in words.values():
            assert meaning.endswith(".")
            assert meaning[0].isupper() or meaning.startswith(("A ", "An "))
