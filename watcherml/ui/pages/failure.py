"""A failure: its capsule as every surface shows it, the mark of a person, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from watcherml.api import data
from watcherml.api.removal import this_user
from watcherml.errors import NotFound
from watcherml.forensics.capsule import Capsule
from watcherml.report.html import html_failure
from watcherml.store.runs import Row
from watcherml.ui.asking import address, item
from watcherml.ui.pages import common
from watcherml.ui.render import Page, face
from watcherml.ui.site import Site

_SAID = {
    "resolved": "The failure is marked as resolved.",
    "opened": "The failure is open again.",
    "already": "Nothing was changed: it was marked so already.",
}


def show(site: Site, request: Request) -> Page:
    """Return the page; ``NotFound`` for an unknown run and for one that did not fail."""
    run_id, storage = site.run_id(request.path_params["run_id"]), site.storage
    row = data.run(storage, run_id)
    capsule = data.capsule(storage, run_id)
    if capsule is None:
        remedy = "Only a failed run has one. Its own page shows everything else."
        raise NotFound(f"run {run_id[:100]} has no failure capsule", remedy=remedy)
    marked = storage.evidence.capsule(run_id)
    campaigns = data.campaigns(storage, source_run_id=run_id)
    values = {
        "row": row,
        "face": face(html_failure(capsule)),
        "marked": marked,
        "author": this_user(),
        "writable": storage.writable,
        "imported": row.get("origin") == "imported",
        "run_link": item("runs", run_id),
        "nearest_link": _nearest(capsule, run_id),
        "similar": _similar(capsule),
        "campaigns": common.campaigns_table(campaigns, "Project", "Source run"),
        "advice": _advice(site, row, capsule, marked, campaigns),
        "said": _SAID.get(request.query_params.get("said", ""), ""),
    }
    return Page("failure.html", "/failures", f"Failure of {row.get('title') or run_id}", values, has_form=True)


def _nearest(capsule: Capsule, run_id: str) -> str:
    near = None if capsule.neighbours is None else capsule.neighbours.nearest
    return "" if near is None else address("/compare", first=near.run_id, second=run_id)


def _similar(capsule: Capsule) -> list[tuple[str, str]]:
    found = () if capsule.neighbours is None else capsule.neighbours.similar
    return [(one.run_id, item("failures", one.run_id)) for one in found]


def _advice(site: Site, row: Row, capsule: Capsule, marked: Mapping[str, Any], campaigns: list[Row]) -> dict[str, str]:
    """Return a sentence and a command: recovery itself stays with the commands and the SDK."""
    storage = site.storage
    if storage.is_older or row.get("origin") != "here" or marked["resolved_at"] is not None:
        return {}
    if not data.is_recoverable(capsule.failure.class_):
        return {"sentence": "Trials cannot recover a failure of this kind. Once it is dealt with, mark it as resolved."}
    for one in campaigns:
        if one["status"] == "verified":
            return {"sentence": "A recovery was verified; the campaign below has the configuration to copy."}
        if one["lifecycle"] == "running":
            return {"sentence": "A recovery is going on; the campaign below shows it live."}
    return {
        "sentence": "A recovery can be planned without running anything. In a terminal, with your training function:",
        "command": site.command("prepare-recovery", str(row["run_id"]), "--entrypoint", "MODULE:FUNCTION"),
    }
