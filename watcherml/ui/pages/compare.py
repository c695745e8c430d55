"""Two runs beside each other; the report is the one that `watcher compare` shows."""

from __future__ import annotations

from starlette.requests import Request

from watcherml.api.compare import compare
from watcherml.report.html import html_compare
from watcherml.ui import asking
from watcherml.ui.pages import common
from watcherml.ui.render import Page, face
from watcherml.ui.site import Site


def show(site: Site, request: Request) -> Page:
    """Return the page; without both ids it asks for them."""
    first, second = asking.text(request, "first"), asking.text(request, "second")
    values = {"first": first or "", "second": second or "", "face": ""}
    if first and second:
        found = compare(common.current(site.storage), site.run_id(first), site.run_id(second))
        values["face"] = face(html_compare(found))
    return Page("compare.html", "/runs", "Compare two runs", values)
