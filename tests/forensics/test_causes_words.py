"""The sentence of a diagnosis: true to its figures, and something to do at its end."""

from __future__ import annotations

import pytest
from cause_vectors import static, vector

from watcherml.forensics.causes.diagnose import diagnose


def test_the_device_is_called_full_only_where_it_is_and_the_end_is_something_to_do():
    full = diagnose(vector(phase="load", static=static(parameters=6.0), foreign=0.0, own_other=0.5))
    assert "was full of" in full.sentence
    large = diagnose(vector(4.0, 9.0, 3.0, 6.0, 6.0, phase="load", step=0, foreign=0.0, own_other=0.0))
    assert "full" not in large.sentence and "4.00 GiB were asked for beside" in large.sentence
    assert "Next: load the model in a smaller type" in large.sentence


@pytest.mark.parametrize(
    ("case", "marks"),
    [({"q": None}, False), ({"q": None, "f": None}, False), ({"phase": "unknown"}, True), ({"a": 15.0}, False)],
)
def test_too_little_evidence_ends_with_what_to_do(case, marks):
    found = diagnose(vector(**case))
    assert found.status == "insufficient_evidence" and "Not measured: " in found.sentence
    assert "Next: a recovery tries smaller micro-batches in fresh processes" in found.sentence
    assert found.sentence.endswith("; mark the part with watcherml.phase(...)." if marks else "fresh processes.")
