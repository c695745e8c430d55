"""Failures: the capsules, newest first."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from watcherml.store import pages
from watcherml.ui import asking
from watcherml.ui.pages import common
from watcherml.ui.render import Page
from watcherml.ui.site import Site

STATES = ("open", "resolved")


def show(site: Site, request: Request) -> Page:
    """Return the page."""
    project, kind = asking.exact(request, "project"), asking.text(request, "class")
    state, page = asking.choice(request, "state", STATES), asking.number(request, "page")
    storage = common.current(site.storage)

    def read(connection: Any) -> tuple[pages.Found, list[str]]:
        found = pages.failures(
            connection,
            asking.cut(page),
            project=project,
            failure_class=kind,
            resolved=None if state is None else state == "resolved",
        )
        return found, [str(one["failure_class"]) for one in pages.failure_classes(connection)]

    nothing: tuple[pages.Found, list[str]] = (common.NOTHING, [])
    found, classes = common.ask(storage, read, nothing)
    values = {
        "table": common.failures_table(found.rows),
        "pager": asking.pager(request, page, found.total),
        "chosen": {"project": project or "", "class": kind or "", "state": state or ""},
        "classes": classes,
        "states": STATES,
        "filtered": bool(project or kind or state),
    }
    return Page("failures.html", "/failures", "Failures", values)
