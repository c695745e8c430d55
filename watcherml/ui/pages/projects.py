"""Projects: how many runs, failures and recoveries each has."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from watcherml.store import pages
from watcherml.ui import asking
from watcherml.ui.pages import common
from watcherml.ui.render import Page
from watcherml.ui.site import Site


def show(site: Site, request: Request) -> Page:
    """Return the page."""
    text, page = asking.text(request, "q"), asking.number(request, "page")
    storage = common.current(site.storage)

    def read(connection: Any) -> pages.Found:
        return pages.projects(connection, asking.cut(page), text=text)

    found = common.ask(storage, read, common.NOTHING)
    values = {"projects": found.rows, "pager": asking.pager(request, page, found.total), "text": text or ""}
    return Page("projects.html", "/projects", "Projects", values)
