"""Readings of the memory between steps that stop before the failure, or skip steps: a leak is still told."""

from __future__ import annotations

import pytest
from cause_vectors import GIB, MIB, changed, judged, vector

from watcherml.forensics.causes.vector import History
from watcherml.recorder.device_memory import MemoryLog, Reading

PACE = 64 * MIB


def leaking(numbers, step):
    """A leak of 64 MiB a step that meets a limit of 23.8 GiB, with 1 GiB more within a step, after 332 steps."""
    held = History(tuple(numbers), tuple(2 * GIB + PACE * at for at in numbers), GIB, (64,) * len(tuple(numbers)))
    return changed(vector(q=1.0, f=0.2, a=22.8, r=22.9, own_other=0.7, step=step, gc_freed=0.0, history=held))


@pytest.mark.parametrize("numbers", [range(1, 333), range(1, 120), range(1, 333, 11), [*range(1, 33), 300]])
def test_a_leak_is_measured_against_the_step_of_the_failure(numbers):
    assert judged(leaking(numbers, 332), "C10") == "sufficient"
    assert judged(leaking(numbers, None), "C10") in ("sufficient", "contributing")


def test_a_failure_long_before_the_pace_meets_the_limit_has_another_cause():
    assert judged(leaking(range(1, 100), 100), "C10") == "contributing"


@pytest.mark.parametrize("gap", [1, 2, 10, 50])
def test_what_piled_up_in_steps_that_nobody_read_is_not_taken_for_one_steps_peak(gap):
    log = MemoryLog(lambda error: None)
    log.step = 0
    log._last, log._last_step = Reading("cuda:0", 2 * GIB, 3 * GIB), 0
    log.step = gap
    log._note_peak(Reading("cuda:0", 2 * GIB + gap * PACE, 3 * GIB + (gap - 1) * PACE + MIB))
    assert log.in_step_peak == GIB + MIB
