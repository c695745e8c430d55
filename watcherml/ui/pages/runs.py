"""Runs: the list, newest first."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from watcherml.store import pages
from watcherml.store.runs import STATUSES
from watcherml.ui import asking
from watcherml.ui.pages import common
from watcherml.ui.render import Page
from watcherml.ui.site import Site


def show(site: Site, request: Request) -> Page:
    """Return the page."""
    project, status = asking.exact(request, "project"), asking.choice(request, "status", STATUSES)
    text, page = asking.text(request, "q"), asking.number(request, "page")
    trials = asking.choice(request, "trials", ("yes",)) is not None
    storage = common.current(site.storage)

    def read(connection: Any) -> pages.Found:
        return pages.runs(connection, asking.cut(page), project=project, status=status, text=text, trials=trials)

    found = common.ask(storage, read, common.NOTHING)
    values = {
        "table": common.runs_table(found.rows),
        "pager": asking.pager(request, page, found.total),
        "chosen": {"project": project or "", "status": status or "", "q": text or "", "trials": trials},
        "statuses": STATUSES,
        "filtered": bool(project or status or text),
    }
    return Page("runs.html", "/runs", "Runs", values)
