"""Whose memory it was that a request found, and what was measured and printed up to a failure."""

import builders
import pytest

from watcherml.forensics.capsule import Completeness, MemoryFacts
from watcherml.forensics.evidence import present
from watcherml.report.before import memory_before, metrics_before
from watcherml.report.html import html_failure, html_progress
from watcherml.report.memory import picture
from watcherml.report.text import text_failure

GIB = 1024**3
STATED = {
    "capacity_bytes": 24 * GIB, "free_bytes": GIB, "allocated_bytes": 17 * GIB, "reserved_unallocated_bytes": 2 * GIB,
    "requested_bytes": 5 * GIB,
}  # fmt: skip


def capsule(make, evidence=None, **facts):
    made = make.capsule(facts=MemoryFacts(**{**STATED, **facts}), found=make.diagnosis(shortfall=4 * GIB))
    pieces = evidence or {}
    kept = tuple(present(one.id, pieces[one.id], "x") if one.id in pieces else one for one in made.evidence)
    found = sum(one.status == "present" for one in kept)
    return made.replace(evidence=kept, completeness=Completeness(found, len(kept)))


@pytest.mark.parametrize(
    ("in_use", "nvml", "own", "foreign", "other"),
    [
        (None, None, None, None, 4),
        (20, None, 1, 3, None),
        (23, None, 4, None, None),
        (19, None, None, 4, None),
        (18, None, None, 4, None),  # rounded figures of a message can disagree
        (40, None, 4, None, None),
        (None, 1, 1, 3, None),
        (20, 2, 1, 3, None),  # the message is of the moment itself
    ],
)
def test_the_rest_of_a_device_is_divided_as_far_as_it_is_known_whose_it_is(make, in_use, nvml, own, foreign, other):
    gpu = {} if nvml is None else {"EV-5": {"failing": {"nvml": {"own_other_bytes": nvml * GIB}}}}
    stated = {} if in_use is None else {"process_in_use_bytes": in_use * GIB}
    found = picture(capsule(make, gpu, **stated))
    sizes = {part.key: part.bytes // GIB for part in found.parts}
    assert [sizes.get(key) for key in ("own_other", "foreign", "other")] == [own, foreign, other]
    assert sum(part.bytes for part in found.parts) == 24 * GIB


def test_a_cap_knows_no_other_processes(make):
    found = picture(capsule(make, allowed_bytes=20 * GIB, process_in_use_bytes=20 * GIB))
    assert [part.key for part in found.parts] == ["allocated", "reserved_unallocated", "free"]


def test_what_was_measured_up_to_the_failure_is_drawn(make):
    evidence = {
        "EV-2": {"device_memory": {"steps": [1, 2, 3], "allocated_after_step_bytes": [GIB, 9 * GIB, 17 * GIB]}},
        "EV-4": [{"at": 5.0, "rss_bytes": GIB}, {"at": 7.0, "rss_bytes": 2 * GIB}],
        "EV-10": [{"name": "<b>loss", "step": step, "value": 1 / step, "at": 5.0 + step} for step in (1, 2, 3)],
    }
    made = capsule(make, evidence)
    device, host = memory_before(made)
    assert (device.axis, device.last, device.level) == ("step", 17.0 * GIB, 24 * GIB)
    assert host.last == 2.0 * GIB and [one.last for one in metrics_before(made)] == [1 / 3]
    html, text = html_failure(made), text_failure(made)
    assert "device memory after each step" in html and "&lt;b&gt;loss" in html and "<b>loss" not in html
    assert html.count("data:image/svg+xml;base64,") == 4
    assert "Up to the failure" in text and "17.00 GiB" in text


ODD = {"device_memory": {"steps": [1], "allocated_after_step_bytes": []}}


@pytest.mark.parametrize("odd", [{}, [], "text", [1], ODD])
def test_evidence_of_another_shape_draws_nothing(make, odd):
    made = capsule(make, {"EV-2": odd, "EV-4": odd, "EV-10": odd})
    assert memory_before(made) == [] and metrics_before(made) == []
    assert "Up to the failure" not in html_failure(made)


def test_a_headline_that_ends_with_the_diagnosis_says_it_once(make):
    made = capsule(make)
    made = made.replace(headline=f"It ran out of memory. {made.diagnosis.sentence}")
    assert html_failure(made).count(made.diagnosis.sentence) == 1


def test_what_a_trial_printed_is_folded_unless_it_has_to_explain():
    row = {"seq": 1, "trial_id": "t-1", "role": "probe", "proposal_id": None, "sentence": ""}
    for changes, opened in (
        ({"outcome": "completed", "log_end": ["<i>one</i>", "two"]}, False),
        ({"outcome": "running", "log_end": ["one", "two"]}, True),
        ({"outcome": "exited", "log_tail": ["one", "two"]}, True),
    ):
        html = html_progress(builders.plan(), [{**row, **changes}], "running", "")
        assert "What it printed, last 2 lines" in html and "<i>" not in html
        assert ("<details" in html) and (" open>" in html) is opened, changes
