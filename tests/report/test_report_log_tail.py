"""The last lines that a failed trial printed stand below its row on every face, and stay inert."""

from builders import plan

from watcherml.report.documents import progress_document
from watcherml.report.html import html_progress
from watcherml.report.text import text_progress

ROW = {"seq": 1, "trial_id": "t-1", "role": "probe", "proposal_id": None, "outcome": "exited", "sentence": "No."}


def test_every_face_shows_the_last_lines_of_a_failed_trial():
    tail = ["Traceback (most recent call last):", "<script>alert(1)</script>\x1b[31m"]
    arguments = (plan(), [{**ROW, "log_tail": tail}], "running", "On its way.")
    text, page, document = text_progress(*arguments), html_progress(*arguments), progress_document(*arguments)
    assert "      | Traceback (most recent call last):" in text and "| <script>" in text and "\x1b" not in text
    assert "Traceback (most recent call last):" in str(page) and "<script>" not in str(page)
    assert document["trials"][0]["log_tail"][0] == tail[0]


def test_a_row_without_them_is_as_before():
    empty = {**ROW, "log_tail": []}
    assert text_progress(plan(), [ROW], "running", "") == text_progress(plan(), [empty], "running", "")
    assert progress_document(plan(), [ROW], "running", "")["trials"][0]["log_tail"] == []
