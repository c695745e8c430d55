"""Faces for the public values that a cell may end with, so that no bare object repr is ever all there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from watcherml.api import data
from watcherml.api.record import Run
from watcherml.api.recover import Campaign, RecoveryPreparation
from watcherml.api.result import RecoveryResult
from watcherml.forensics.capsule import Capsule
from watcherml.forensics.neighbours import Comparison
from watcherml.notebook.panels.base import Page, Panel, kernel_here, notice
from watcherml.notebook.panels.compare import comparison_page
from watcherml.notebook.panels.failure import failure_page
from watcherml.notebook.panels.progress import ProgressPanel
from watcherml.notebook.panels.run import RunPanel, run_panel
from watcherml.notebook.panels.verdict import verdict_page
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.verdict import Verdict
from watcherml.report.html import html_plan, html_run
from watcherml.report.safe import many_lines, one_line
from watcherml.report.text import text_plan, text_run
from watcherml.report.text_archive import imported_note
from watcherml.store.storage import Storage

# A page has no room for a million points.
_MOST_POINTS = 2_000


def run_page(storage: Storage, row: Mapping[str, Any]) -> Panel:
    """Return a recorded run as a panel: live while it goes on, else the whole of it with its failure below."""
    run_id = str(row["run_id"])
    if row["status"] == "running" and not storage.is_older:
        return RunPanel(storage, run_id)
    metrics, samples = (
        storage.get_metrics(run_id, max_points=_MOST_POINTS),
        storage.runs.samples(run_id, max_points=_MOST_POINTS),
    )
    artifacts = storage.runs.artifacts(run_id)
    text, html = text_run(row, metrics, samples, artifacts), html_run(row, metrics, samples, artifacts)
    note = imported_note(row)
    if note:
        above = notice(note, "warn")
        text, html = f"{above.text()}\n{text}", above.html() + html
    capsule = data.capsule(storage, run_id)
    if capsule is not None:
        below = _capsule(capsule, ours=not note and not storage.is_older)
        text, html = f"{text}\n{below.text()}", html + below.html()
    return Page(text, html)


def _run(run: Run) -> Panel:
    if run.status == "new" or not run.storage.exists:
        return notice(f"Run {run.run_id} is {run.status}.")
    if run.status == "running":
        return run_panel(run)
    return run_page(run.storage, run.storage.get_run(run.run_id))


def _plan(plan: RecoveryPlan) -> Page:
    return Page(text_plan(plan), html_plan(plan))


def _preparation(preparation: RecoveryPreparation) -> Page:
    return _plan(preparation.plan)


def _campaign(campaign: Campaign) -> Panel:
    return ProgressPanel(campaign, "")


def _result(result: RecoveryResult) -> Page:
    return verdict_page(result)


def _capsule(capsule: Capsule, ours: bool = True) -> Page:
    return failure_page(capsule, f"This failure is on record with run {capsule.run_id}.", on_record=ours)


def _verdict(verdict: Verdict) -> Page:
    # A bare verdict does not say whose it is; its result does, and only that one is shown as verified.
    return notice(f"A verdict of campaign {one_line(verdict.campaign_id)} says: {verdict.sentence}", "quiet")


_LIVE: tuple[tuple[type, Callable[[Any], Panel]], ...] = ((Run, _run), (Campaign, _campaign))
_FACES: tuple[tuple[type, Callable[[Any], Panel]], ...] = (
    *_LIVE,
    (RecoveryPreparation, _preparation),
    (RecoveryResult, _result),
    (RecoveryPlan, _plan),
    (Verdict, _verdict),
    (Capsule, _capsule),
    (Comparison, comparison_page),
)


def display(value: Any) -> None:
    """Show a value that is live as its panel does; ``NotImplementedError`` for one that its bundle says all of."""
    face = next((face for kind, face in _LIVE if isinstance(value, kind)), None)
    if face is None or not kernel_here():
        raise NotImplementedError
    try:
        panel = face(value)
    except Exception as error:  # the bundle says what went wrong
        raise NotImplementedError from error
    panel._ipython_display_()


def bundle(value: Any) -> dict[str, Any]:
    """Return a value's MIME bundle: text and HTML always, and a live view where there is a kernel for it."""
    face = next((face for kind, face in _FACES if isinstance(value, kind)), None)
    if face is None:
        return {}
    try:
        return face(value)._repr_mimebundle_()
    except Exception as error:  # noqa: BLE001 - to look at a value must not end a cell
        words = f"This {type(value).__name__} cannot be shown now: {many_lines(error, 1_000)}"
        return notice(words, "warn")._repr_mimebundle_()
