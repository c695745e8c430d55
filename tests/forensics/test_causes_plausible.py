"""Readings that no device can give count as not measured, and whatever comes in, a diagnosis comes out."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from cause_vectors import GIB, changed, ids, judged, static, vector
from hypothesis import given, settings
from hypothesis import strategies as st

from watcherml.forensics.causes.diagnose import (
    citing,
    control_only,
    diagnose,
    refuses,
    ruled_out,
    supported_capabilities,
)
from watcherml.forensics.causes.plausible import plausible
from watcherml.forensics.causes.table import ORDER
from watcherml.forensics.causes.vector import History, Sizes, Static, Vector
from watcherml.forensics.shortfall import Shortfall

HUGE = 2**64  # how a driver prints "not available"


@pytest.mark.parametrize("wrong", [-1, -GIB, HUGE, 10**30])
@pytest.mark.parametrize(
    ("name", "cause"),
    [("foreign", "C4"), ("own_other", "C6"), ("private_pools", "C7"), ("gc_freed", "C11"), ("at_start", "C5")],
)
def test_an_impossible_figure_is_the_same_as_none(name, cause, wrong):
    made = vector(a=12.0, r=12.0)
    assert diagnose(replace(made, **{name: wrong})) == diagnose(replace(made, **{name: None}))
    assert judged(replace(made, **{name: wrong}), cause) == "unknown"


def test_a_shortfall_does_not_rest_on_an_impossible_figure():
    for name in ("requested", "free"):
        assert plausible(replace(vector(), **{name: -GIB})).missing is None
    assert plausible(replace(vector(), missing=Shortfall(-(2**80), 2**80))).missing is None
    capped = vector(q=1.0, f=9.0, r=15.5, y=16.0)
    assert capped.missing.low == GIB // 2
    assert plausible(replace(capped, allowed=HUGE)).missing.high == -8 * GIB


def test_more_free_than_there_is_says_nothing():
    found = diagnose(vector(q=1.0, c=8.0, f=9.0, a=1.0, r=1.0))
    assert ids(found)["sufficient"] == [] and "what was free" in found.sentence
    assert judged(vector(c=0.0, a=3.0), "C25") == "unknown"


def test_wrong_points_of_a_history_are_left_out():
    held = History(steps=(1, 2, 3, 4), allocated=(GIB, -1, HUGE, GIB), batch_elements=(8, -8), in_step_peak=-1)
    assert plausible(vector(history=held)).history == History(steps=(1, 4), allocated=(GIB, GIB))
    assert plausible(vector(static=Static(parameters=-1, buffers=2))).static == Static(buffers=2)
    assert plausible(vector(sizes=Sizes(micro_batch=0, heads=8))).sizes == Sizes(heads=8)


def test_batches_of_nothing_divide_nothing():
    for batches, judgement in (((0,) * 9, "excluded"), ((0,) * 8 + (5,), "unknown")):
        found = vector(history=History(steps=(1, 2), allocated=(1, 1), batch_elements=batches))
        assert judged(found, "C17") == judgement


NUMBERS = st.none() | st.integers(-(2**70), 2**70) | st.integers(0, 40 * GIB)
_FIGURES = [one.name for one in fields(Vector) if one.type == "int | None"]


@given(st.dictionaries(st.sampled_from(_FIGURES), NUMBERS), st.lists(NUMBERS.filter(lambda one: one is not None)))
@settings(max_examples=300, deadline=None)
def test_whatever_was_read_a_diagnosis_comes_out_that_can_be_sealed(figures, values):
    sizes = tuple(values)
    made = changed(vector(), history=History(tuple(range(len(sizes))), sizes, None, sizes, sizes), **figures)
    found = diagnose(made)
    assert type(found).from_json(found.to_json()) == found
    listed = [one for name in ("sufficient", "contributing", "excluded", "unknown") for one in getattr(found, name)]
    assert sorted((one.id for one in listed), key=ORDER.index) == list(ORDER)
    assert all(one.bytes is None or one.bytes >= 0 or one.id == "C26" for one in listed)
    for use in (supported_capabilities, ruled_out, refuses, control_only):
        use(found)


def test_where_figures_mean_something_else_nothing_else_is_judged():
    found = ids(vector(a=30.0, foreign=3.0))
    assert found["sufficient"] == ["C25"] and "C4" in found["unknown"]
    assert {one for names in found.values() for one in names} == set(ORDER)


def test_a_cause_cites_only_what_the_capsule_holds():
    found = citing(diagnose(vector(foreign=3.0, own_other=0.5)), {"EV-6"})
    assert [(one.id, one.evidence_ids) for one in found.sufficient] == [("C4", ())]
    assert all(set(one.evidence_ids) <= {"EV-6"} for one in found.excluded + found.contributing)
    assert any("EV-5" in one.evidence_ids for one in found.unknown)  # what would tell


def test_a_full_card_that_the_model_fills_is_not_told_to_make_the_step_smaller():
    """A copy of the weights beside model, gradients and state: nothing of the step could free what is missing."""
    made = vector(q=1.0, f=0.2, a=23.0, r=23.2, static=static(parameters=22.9), sizes=Sizes(micro_batch=8))
    sentence = diagnose(made).sentence
    assert "22.90 GiB of them the model" in sentence and "a smaller step alone frees too little" in sentence
    assert "make the step smaller" in diagnose(changed(made, request_scales=True)).sentence
    assert "make the step smaller" in diagnose(replace(made, static=static(parameters=20.0))).sentence


def test_what_to_do_stands_by_itself_where_a_cause_explains_the_failure():
    assert diagnose(vector(foreign=3.0, own_other=0.5)).action.startswith(
        "free it and run the control trial; no change"
    )
    full = vector(a=23.0, r=23.2, static=static(parameters=22.9), sizes=Sizes(micro_batch=8))
    assert diagnose(full).action.startswith("load the model in a smaller type")
    assert diagnose(vector(static=static(parameters=6.0), foreign=0.0, own_other=0.5)).action.startswith(
        "make the step"
    )
    assert diagnose(vector(q=None)).action is None and "Next: " in diagnose(vector(q=None)).sentence


def test_batches_that_grow_are_the_cause_though_what_they_leave_grows_too():
    sizes = tuple(range(1_000, 3_100, 100))
    held = History(tuple(range(20)), tuple(8 * GIB + size * 10_000 for size in sizes[:-1]), None, sizes)
    assert judged(vector(history=held, step=20), "C17") == "sufficient"
    flat = replace(held, batch_elements=(1_000,) * 20 + (3_000,))
    assert judged(vector(history=flat, step=20), "C17") == "sufficient"
    grown = replace(flat, allocated=tuple(4 * GIB + at * GIB // 4 for at in range(20)))
    assert judged(vector(history=grown, step=20), "C17") == "contributing"
