"""A campaign whose supervisor is gone shows no trial that runs, on any face."""

import pytest

from watcherml.report.documents import progress_document
from watcherml.report.html import html_progress
from watcherml.report.text import text_progress

GONE = "The supervising process is gone."


@pytest.mark.parametrize("outcome", ["running", None])
def test_a_trial_without_an_end_reads_as_lost_once_nobody_runs_it(make, outcome):
    row = {"seq": 1, "trial_id": "t-1", "role": "control", "proposal_id": None, "outcome": outcome, "wall_s": 57.0}
    document = progress_document(make.plan(), [row], "interrupted", GONE)
    assert [(one["outcome"], one["wall_s"]) for one in document["trials"]] == [("lost", None)]
    for face in (text_progress, html_progress):
        shown = face(make.plan(), [row], "interrupted", GONE)
        assert "lost" in shown and "running" not in shown and "57 s" not in shown
    assert progress_document(make.plan(), [row], "running", "")["trials"][0]["outcome"] == "running"


def test_a_trial_that_had_ended_keeps_its_outcome(make):
    row = {"seq": 1, "trial_id": "t-1", "role": "control", "proposal_id": None, "outcome": "oom", "wall_s": 2.0}
    assert progress_document(make.plan(), [row], "interrupted", GONE)["trials"][0]["outcome"] == "oom"
