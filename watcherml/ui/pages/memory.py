"""Memory: what failed before, what fixed it, and where."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from watcherml.api.result import ELSEWHERE
from watcherml.report.safe import compact, one_line
from watcherml.store import pages
from watcherml.store.older import CLAIMED
from watcherml.ui import asking
from watcherml.ui.asking import item
from watcherml.ui.pages import common
from watcherml.ui.render import Page
from watcherml.ui.site import Site

_ROWS = 20
# Who says that it helped: the word, its colour and its meaning for somebody who points at it.
_SAID = {
    "verified": ("verified", "good", "This store ran the trials and recomputes the verdict from them."),
    "resolved": ("resolved by a person", "calm", "A person marked the failure as resolved; nothing was run."),
    "imported": ("verified elsewhere", "warn", "Another store made this verdict; this one only keeps a copy."),
    CLAIMED: ("claimed by 0.1", "warn", "Version 0.1 wrote this verdict; its trials cannot be checked again here."),
}  # fmt: skip


def show(site: Site, request: Request) -> Page:
    """Return the page."""
    project, kind = asking.exact(request, "project"), asking.text(request, "class")
    page = asking.number(request, "page")
    storage = common.current(site.storage)

    def read(connection: Any) -> tuple[pages.Found, list[dict[str, Any]]]:
        found = pages.remedies(connection, asking.cut(page, _ROWS), project=project, failure_class=kind)
        return found, pages.failure_classes(connection, project)

    nothing: tuple[pages.Found, list[dict[str, Any]]] = (common.NOTHING, [])
    found, classes = common.ask(storage, read, nothing)
    values = {
        "remedies": [_remedy(row, storage.is_older) for row in found.rows],
        "classes": classes,
        "pager": asking.pager(request, page, found.total, rows=_ROWS, anchor="#remedies"),
        "chosen": {"project": project or "", "class": kind or ""},
        "filtered": bool(project or kind),
    }
    return Page("memory.html", "/memory", "Memory", values)


def _remedy(row: dict[str, Any], older: bool) -> dict[str, Any]:
    word, tone, why = _SAID.get(str(row["kind"]), (str(row["kind"]), "quiet", ""))
    if older and row["kind"] == "resolved":
        word, tone = "marked in 0.1", "warn"
    campaign, told = row["campaign_id"], row["told"] or ""
    return {
        **row,
        "told": f"{ELSEWHERE}{told}" if row["kind"] == "imported" else told,
        "word": word, "tone": tone, "why": why,
        "changes": [_change(one) for one in row["changes"]],
        "run_link": item("failures", row["run_id"]),
        "campaign_link": item("campaigns", campaign) if campaign else "",
    }  # fmt: skip


def _change(one: dict[str, Any]) -> tuple[str, str, str]:
    path = one.get("path")
    name = ".".join(map(str, path)) if isinstance(path, list) else str(path)
    return one_line(name, 160), compact(one.get("before"), 80), compact(one.get("after"), 80)
