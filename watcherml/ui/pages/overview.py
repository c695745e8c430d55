"""Overview: what is going on, what needs somebody, and what happened last."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from watcherml.report.units import plural
from watcherml.store import pages
from watcherml.store.pages import Cut
from watcherml.ui.pages import common
from watcherml.ui.render import Page
from watcherml.ui.site import Site

_FEW = 6
_LESS = ("Device", "Trials", "Trial time")


def show(site: Site, request: Request) -> Page:
    """Return the page."""
    storage = common.current(site.storage)

    def read(connection: Any) -> dict[str, Any]:
        return {
            "runs": pages.run_counts(connection),
            "campaigns": pages.campaign_counts(connection),
            "projects": pages.projects(connection, Cut(_FEW)),
            "open": pages.failures(connection, Cut(_FEW), resolved=False),
            "running": pages.runs(connection, Cut(_FEW), status="running"),
            "unfinished": pages.campaigns(connection, Cut(_FEW), status=pages.UNFINISHED),
            "latest": pages.runs(connection, Cut(_FEW)),
            "ended": pages.campaigns(connection, Cut(_FEW)),
        }

    nothing: dict[str, Any] = {}
    found = common.ask(storage, read, nothing)
    if not found or not found["latest"].total:
        return Page("overview.html", "/", "Overview", {"empty": True, "exists": storage.exists})
    values = {
        "empty": False,
        "sentence": _sentence(found),
        "figures": _figures(found),
        "open": found["open"],
        "open_table": common.failures_table(found["open"].rows, "State", "Device"),
        "running": found["running"],
        "running_table": common.runs_table(found["running"].rows, "Status", "Failure"),
        "unfinished": found["unfinished"],
        "unfinished_table": common.campaigns_table(common.with_lifecycle(storage, found["unfinished"].rows), *_LESS),
        "latest": found["latest"],
        "latest_table": common.runs_table(found["latest"].rows, "Device"),
        "campaigns": found["ended"],
        "campaigns_table": common.campaigns_table(common.with_lifecycle(storage, found["ended"].rows), *_LESS),
    }
    return Page("overview.html", "/", "Overview", values)


def _sentence(found: dict[str, Any]) -> str:
    runs, waiting = found["runs"], found["open"].total
    text = f"{plural(found['latest'].total, 'run')} in {plural(found['projects'].total, 'project')}"
    if runs.get("running"):
        text += f", {runs['running']:,} going on now"
    if not waiting:
        return f"{text}. No failure is open."
    return f"{text}. {plural(waiting, 'failure')} {'is' if waiting == 1 else 'are'} open."


def _figures(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return title, number and address of each figure."""
    runs, campaigns = found["runs"], found["campaigns"]
    failed = runs.get("failed", 0) + runs.get("killed", 0)
    return [
        ("Runs", f"{found['latest'].total:,}", "/runs"),
        ("Going on", f"{runs.get('running', 0):,}", "/runs?status=running"),
        ("Succeeded", f"{runs.get('success', 0):,}", "/runs?status=success"),
        ("Failed or killed", f"{failed:,}", "/failures"),
        ("Open failures", f"{found['open'].total:,}", "/failures?state=open"),
        ("Campaigns", f"{sum(campaigns.values()):,}", "/campaigns"),
        ("Verified recoveries", f"{campaigns.get('verified', 0):,}", "/campaigns?status=verified"),
    ]
