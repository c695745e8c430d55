"""The step that memory which piles up can reach at most, and the causes that refuse: what a diagnosis keeps of both."""

from dataclasses import replace

import pytest
from cause_vectors import GIB, MIB, History, changed, steps, vector

from watcherml.forensics.capsule import Cause, Diagnosis
from watcherml.forensics.causes.diagnose import control_only, diagnose, refuses, refusing

LIMIT = 23_664  # MiB that torch could have had
EVEN = (64,) * 231


def leak(count=231, slope=38.0, first=9_000, peak=6_000, batches=EVEN, **more):
    """The leak of facts: 9,000 MiB at first, 38 MiB a step, 6,000 MiB more within a step; it failed at step 231."""
    grown = History(**steps(first, slope, count), in_step_peak=peak * MIB, batch_elements=batches)
    base = vector(q=0.5, c=24.0, f=0.1, a=22.6, r=LIMIT / 1024 - 0.1, step=count, gc_freed=0.1, history=grown)
    return changed(base, capacity=LIMIT * MIB + 336 * MIB, **more)


def test_the_horizon_is_where_the_growth_alone_would_fill_the_device():
    made = leak()
    found = diagnose(made)
    assert [one.id for one in found.sufficient] == ["C10"]
    # From what lay there after the last step, with nothing beside it.
    last = made.history.allocated[-1]
    assert found.horizon_step == 232 + int((made.own_limit - last) / (38 * MIB))
    assert 231 < found.horizon_step < 400


def test_growth_that_explains_only_part_of_the_failure_predicts_the_next_one():
    """At its pace it would have lasted longer: another cause ended this run, and the leak ends the next."""
    made = changed(leak(), requested=6 * GIB, free=1 * GIB)
    made = replace(made, history=replace(made.history, in_step_peak=100 * MIB))
    found = diagnose(made)
    assert "C10" in [one.id for one in found.contributing] and found.horizon_step is not None


@pytest.mark.parametrize(
    "change",
    [
        {"gc_freed": None},  # not measured
        {"gc_freed": 8 * GIB},  # cycles, which a collection gives back
        {"history": replace(leak().history, batch_elements=())},
        {"history": replace(leak().history, batch_elements=tuple(range(64, 64 + 231)))},  # the batches grew
        {"history": replace(leak().history, steps=(1, 2, 3), allocated=(1 * GIB, 2 * GIB, 3 * GIB))},
        {"history": replace(leak().history, allocated=(9_000 * MIB,) * 231)},
        {"history": History()},
        {"step": 0},
        {"capacity": None},
    ],
)
def test_nothing_is_predicted_from_what_was_not_measured_or_does_not_grow(change):
    assert diagnose(changed(leak(), **change)).horizon_step is None


@pytest.mark.parametrize("change", [{"gc_freed": None}, {"gc_freed": 8 * GIB}])
def test_growth_that_contributes_predicts_nothing_until_it_was_measured_to_stay(change):
    made = changed(leak(), requested=20 * GIB, **change)
    found = diagnose(made)
    assert "C10" in [one.id for one in found.contributing] and found.horizon_step is None


def test_growth_of_a_small_part_of_the_device_predicts_nothing():
    """On a full card a few MiB are a quarter of what was missing; no run is held to millions of steps for them."""
    made = changed(leak(slope=0.05, peak=14_000), requested=20 * MIB, free=0, gc_freed=0)
    found = diagnose(made)
    assert "C10" in [one.id for one in found.contributing] and found.horizon_step is None


def test_a_diagnosis_that_was_sealed_before_keeps_its_bytes():
    found = diagnose(leak()).replace(horizon_step=None)
    assert "horizon" not in found.to_json() and Diagnosis.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("ids", "refused", "control"),
    [
        (["C10"], ["C10"], False),
        (["C10", "C16a"], ["C10", "C16a"], False),
        (["C4"], ["C4"], True),
        (["C4", "C10"], ["C4", "C10"], True),
        (["C10", "C13"], [], False),  # one of them can be acted on
        (["C21"], [], False),
        ([], [], False),
    ],
)
def test_the_causes_that_refuse_are_all_sufficient_ones_or_none(ids, refused, control):
    causes = tuple(Cause(one, f"cause {one}", 1, ("EV-6",), f"{one} holds it.") for one in ids)
    found = Diagnosis("ambiguous", 1, "forward", causes, (), (), (), 4, "a sentence")
    assert [one.id for one in refusing(found)] == refused
    assert bool(refuses(found)) == (bool(refused) and not control) and bool(control_only(found)) == control
