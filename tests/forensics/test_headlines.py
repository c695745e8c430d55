"""The first line of a capsule: what failed, also where a wrapper says nothing of it."""

from __future__ import annotations

import pytest

import watcherml
from watcherml.forensics.capsule import Capsule

SHAPES = "mat1 and mat2 shapes cannot be multiplied (8x5 and 6x1)"
REPLICA = (
    "Caught RuntimeError in replica 0 on device 0.\nOriginal Traceback (most recent call last):\n"
    f'  File "a.py", line 1\nRuntimeError: {SHAPES}\n'
)
ELASTIC = (
    "\n=====\ntrain.py FAILED\nRoot Cause:\n  traceback : Traceback (most recent call last):\n"
    '    File "t.py", line 1\n  ValueError: Loss is NaN at step 120\n====='
)
SAID = [
    (RuntimeError(REPLICA), "replica 0 on device 0. (mat1 and mat2 shapes cannot be multiplied)"),
    (RuntimeError(ELASTIC), "train.py FAILED (Loss is NaN)"),
    (ValueError("Loss is NaN at step 120"), ": Loss is NaN at step 120"),
    (RuntimeError("\n\n ---\nplain words"), ": plain words"),
    (RuntimeError(""), ": "),
]


@pytest.mark.parametrize(("error", "end"), SAID)
def test_a_headline_names_what_failed_behind_its_wrapper(storage, error, end):
    run = watcherml.Run("demo", {}, storage, quiet=True)
    with pytest.raises(type(error)), run:
        raise error
    headline = Capsule.from_json(storage.evidence.capsule(run.run_id)["document"]).headline
    assert headline.endswith(end) and "\n" not in headline
