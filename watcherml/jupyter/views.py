"""Runs, failures and campaigns as pages: the report's own faces, which hold no script, and where they lead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from watcherml.api import glance
from watcherml.api.glance import CampaignParts
from watcherml.jupyter import rows
from watcherml.report import markup
from watcherml.report.html import html_failure, html_progress, html_run, html_verdict
from watcherml.report.html_claim import html_claim
from watcherml.report.html_run import MAX_CHARTS
from watcherml.report.safe import one_line
from watcherml.report.tables import event_name
from watcherml.report.units import format_time

if TYPE_CHECKING:
    from watcherml.store.storage import Storage

View = dict[str, Any]
_TITLE = 400
_LINKS = 5


def run(storage: Storage, run_id: str) -> View:
    """Return a run's page. Raises as ``glance.run_parts`` does."""
    parts = glance.run_parts(storage, run_id, MAX_CHARTS)
    face = html_run(parts.row, parts.metrics, parts.samples, parts.artifacts)
    links = [_link("failure", run_id, "Failure")] if parts.failed else []
    title = parts.row.get("title") or run_id
    return _view("run", run_id, title, face, links + _campaigns(parts.campaigns), live=parts.row["status"] == "running")


def failure(storage: Storage, run_id: str) -> View:
    """Return a failure's capsule. Raises as ``glance.failure_parts`` does."""
    row, capsule, campaigns = glance.failure_parts(storage, run_id)
    links = [_link("run", run_id, "Run"), *_campaigns(campaigns)]
    return _view("failure", run_id, row.get("title") or run_id, html_failure(capsule), links)


def campaign(storage: Storage, campaign_id: str) -> View:
    """Return a campaign as it stands. Raises as ``glance.campaign_parts`` does."""
    parts = glance.campaign_parts(storage, campaign_id)
    source = str(parts.row["source_run_id"])
    links = [_link("failure", source, "Failure"), _link("run", source, "Run")]
    face = _campaign_face(parts) + _trail(parts)
    live = parts.state in ("prepared", "running")
    found = _view("campaign", campaign_id, campaign_id, face, links, live=live)
    return {**found, "stoppable": parts.state == "running"}


def _campaign_face(parts: CampaignParts) -> str:
    if parts.plan is None:
        return html_claim(parts.row, parts.trials)
    if parts.verdict is not None:
        return html_verdict(parts.verdict, parts.plan, parts.trials, parts.standing)
    sentence = parts.row["sentence"] or (parts.events[-1]["words"] if parts.events else "")
    return html_progress(parts.plan, parts.trials, parts.state, str(sentence))


def _trail(parts: CampaignParts) -> str:
    if not parts.events:
        return ""
    lines = [
        (markup.escape(format_time(one["at"])), markup.escape(event_name(one)), markup.shown(one["words"], 400))
        for one in reversed(parts.events)
    ]
    title = markup.strong(markup.escape(f"Audit trail ({len(lines):,})"))
    table = markup.grid(("When", "What", "In words"), lines, wrapped=(2,))
    return markup.root(markup.fold(title, table))


def _campaigns(found: list[dict[str, Any]]) -> list[dict[str, str]]:
    return [
        _link("campaign", str(one["campaign_id"]), f"Campaign: {rows.campaign(one)['status']}")
        for one in found[:_LINKS]
    ]  # fmt: skip


def _link(kind: str, name: str, label: str) -> dict[str, str]:
    return {"kind": kind, "id": name, "label": label}


def _view(kind: str, name: str, title: object, face: str, links: list[dict[str, str]], *, live: bool = False) -> View:
    return {
        "kind": kind,
        "id": name,
        "title": one_line(title, _TITLE),
        "html": face,
        "links": links,
        "live": live,
        "stoppable": False,
    }
