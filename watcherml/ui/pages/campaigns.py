"""Campaigns: the recoveries of this store, then those that came with imported runs."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from watcherml.api.result import ELSEWHERE
from watcherml.store import pages
from watcherml.store.older import CLAIMED
from watcherml.store.runs import Row
from watcherml.store.storage import Storage
from watcherml.ui import asking
from watcherml.ui.pages import common
from watcherml.ui.render import Page
from watcherml.ui.site import Site

IMPORTED = "imported"
STATUSES = ("verified", "not_recovered", "stopped", "integration_error", pages.UNFINISHED, IMPORTED, CLAIMED)


def show(site: Site, request: Request) -> Page:
    """Return the page."""
    project, status = asking.exact(request, "project"), asking.choice(request, "status", STATUSES)
    page = asking.number(request, "page")
    rows, total = _page(common.current(site.storage), asking.cut(page), project, status)
    values = {
        "table": common.campaigns_table(rows),
        "pager": asking.pager(request, page, total),
        "chosen": {"project": project or "", "status": status or ""},
        "statuses": STATUSES,
        "filtered": bool(project or status),
    }
    return Page("campaigns.html", "/campaigns", "Campaigns", values)


def _page(storage: Storage, cut: pages.Cut, project: str | None, status: str | None) -> tuple[list[Row], int]:
    def read(connection: Any) -> tuple[pages.Found, pages.Found]:
        own = common.NOTHING
        if status != IMPORTED:
            own = pages.campaigns(connection, cut, project=project, status=status)
        if status not in (None, IMPORTED):
            return own, common.NOTHING
        # What others claim stands below what this store made, however new it is.
        rest = pages.Cut(cut.limit - len(own.rows), max(0, cut.offset - own.total))
        return own, pages.imported_campaigns(connection, rest, project=project)

    own, others = common.ask(storage, read, (common.NOTHING, common.NOTHING))
    return [*common.with_lifecycle(storage, own.rows), *map(_claimed, others.rows)], own.total + others.total


def _claimed(row: Row) -> Row:
    """Return a campaign of another store as every list has it: its status is that it was imported."""
    told = f"{ELSEWHERE if row['status'] == 'verified' else 'Claimed elsewhere: '}{row['sentence']}"
    return {**row, "status": IMPORTED, "lifecycle": IMPORTED, "sentence": told}
