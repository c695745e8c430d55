"""The application: which address shows which page, and what becomes of an error.

Nothing is changed but a run's name and the mark on a failure; every other address is only read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from watcherml.errors import InvalidRecord, InvalidValue, NotFound, StoreError, WatcherError
from watcherml.report.safe import one_line
from watcherml.store.sound import hearing
from watcherml.ui import asking
from watcherml.ui.changes import CHANGES
from watcherml.ui.guard import HEADERS, Guard
from watcherml.ui.live import live
from watcherml.ui.pages import (
    campaign,
    campaigns,
    compare,
    failure,
    failures,
    guide,
    memory,
    overview,
    projects,
    run,
    runs,
    settings,
)
from watcherml.ui.render import Page, assets, render
from watcherml.ui.site import Site

View = Callable[[Site, Request], Page]
PAGES: dict[str, View] = {
    "/": overview.show,
    "/projects": projects.show,
    "/runs": runs.show,
    "/runs/{run_id:path}": run.show,
    "/failures": failures.show,
    "/failures/{run_id:path}": failure.show,
    "/campaigns": campaigns.show,
    "/campaigns/{campaign_id:path}": campaign.show,
    "/compare": compare.show,
    "/memory": memory.show,
    "/guide": guide.show,
    "/settings": settings.show,
}
DEBUG = "WATCHERML_DEBUG"
_TITLES = {
    400: "A value cannot be used",
    403: "Refused",
    404: "Not found",
    405: "That cannot be done here",
    409: "Nothing was changed",
    500: "Something went wrong here",
    503: "The store cannot be read",
}


def create_app(site: Site) -> ASGIApp:
    """Return the application over one store, behind its guard."""
    routes = [Route(path, _page(site, view), methods=["GET"]) for path, view in PAGES.items()]
    routes += [Route(f"/{name}", _change(site, name), methods=["POST"]) for name in CHANGES]
    routes.append(Route("/live/{campaign_id:path}", _guarded(site, lambda request: live(site, request))))
    routes.append(Route("/static/{name:path}", _guarded(site, _asset)))

    async def refused(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        message = f"There is no page {one_line(request.url.path, 200)}"
        if status == 405:
            message = f"{request.method} is not done to {one_line(request.url.path, 200)}"
        answer = _answer(site, request, _error_page(status, message))
        answer.headers.update(getattr(error, "headers", None) or {})  # which methods there are
        return answer

    return Guard(Starlette(routes=routes, exception_handlers={404: refused, 405: refused}), site.names)


def _page(site: Site, view: View) -> Callable[[Request], Awaitable[Response]]:
    def work(request: Request) -> Response:
        with hearing() as left_out:
            return _answer(site, request, view(site, request), left_out)

    return _guarded(site, lambda request: run_in_threadpool(work, request))


def _change(site: Site, name: str) -> Callable[[Request], Awaitable[Response]]:
    async def change(request: Request) -> Response:
        fields = await asking.form(request)
        if not site.holds(fields.pop("token", "")):
            page = _error_page(
                403,
                "This form does not carry the token of this server",
                remedy="The UI was started anew since the page was opened. Open the page again and repeat the change.",
            )
            return _answer(site, request, page)
        back = await run_in_threadpool(CHANGES[name], site, fields)
        return RedirectResponse(back, status_code=303)  # so that a reload of the page does not send the form again

    return _guarded(site, change)


def _guarded(site: Site, work: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            return await work(request)
        except HTTPException:
            raise
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        except WatcherError as error:
            status = _status(error, request.method)
            record = status == 500 and isinstance(error, InvalidRecord)
            words = f"A record of this store does not hold together: {error.message}" if record else error.message
            return _answer(site, request, _error_page(status, words, error.expected, error.got, error.remedy))
        except Exception as error:  # noqa: BLE001 - a person gets a page, whatever went wrong
            _complain(request, error)
            words = f"This page could not be made ({type(error).__name__})"
            remedy = f"The terminal of `watcher ui` says more; with {DEBUG}=1 it says where it came from."
            return _answer(site, request, _error_page(500, words, remedy=remedy))

    return endpoint


async def _asset(request: Request) -> Response:
    found = assets().get(request.path_params["name"])
    if found is None:
        raise HTTPException(404)
    return Response(found[0], media_type=found[1])


def _status(error: WatcherError, method: str) -> int:
    if isinstance(error, NotFound):
        return 404
    # A form's fields are checked as a record's are; where nothing was sent, a record of the store is what is wrong.
    if isinstance(error, InvalidValue) and (method == "POST" or not isinstance(error, InvalidRecord)):
        return 400
    if isinstance(error, StoreError):
        return 503 if method in ("GET", "HEAD") else 409
    return 500


def _answer(site: Site, request: Request, page: Page, left_out: Sequence[str] = ()) -> Response:
    store: dict[str, Any] = {"path": str(site.storage.path), "older": site.storage.is_older}
    html = render(page, token=site.token, store=store, call=site.command, left_out=left_out)
    # Without a referrer a browser calls the origin of its own forms "null"; other sites learn nothing either way.
    headers = {"Referrer-Policy": "same-origin"} if page.has_form else {}
    return HTMLResponse(html, page.status, headers={**HEADERS, **headers})


def _error_page(status: int, message: str, expected: str = "", got: str = "", remedy: str = "") -> Page:
    if status == 400:
        remedy = remedy or "Correct it in the address or in the form, or leave it out."
    values = {"status": status, "message": message, "expected": expected, "got": got, "remedy": remedy}
    return Page("error.html", "", _TITLES.get(status, "Something went wrong"), values, status)


def _complain(request: Request, error: Exception) -> None:
    if os.environ.get(DEBUG) == "1":
        import traceback

        traceback.print_exception(error)
    words = one_line(f"{request.method} {request.url.path}: unexpected {type(error).__name__}: {error}", 600)
    sys.stderr.write(f"watcher ui: {words}\n")
