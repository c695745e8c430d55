"""A campaign as it goes on, as server-sent events: each new line of the audit trail, and its face when it changes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from watcherml.api import data
from watcherml.errors import InvalidValue, WatcherError
from watcherml.ui.pages.campaign import Shown, look, trail_html
from watcherml.ui.site import Site

LOOK_SECONDS = 0.5
_KEEP_SECONDS = 15.0
_MOST_STREAMS = 40


async def live(site: Site, request: Request) -> Response:
    """Return the stream of a campaign after the event ``after`` (or the browser's Last-Event-ID)."""
    campaign_id = site.campaign_id(request.path_params["campaign_id"])
    after = _after(request.headers.get("last-event-id") or request.query_params.get("after", "0"))
    await run_in_threadpool(data.campaign, site.storage, campaign_id)  # an unknown one is a page, not a stream
    if request.method == "HEAD":
        return Response(media_type="text/event-stream")  # a stream would keep the connection for nobody
    if len(site.streams) >= _MOST_STREAMS:
        return Response("Too many pages follow campaigns already.\n", 503, media_type="text/plain")
    return StreamingResponse(_stream(site, campaign_id, after), media_type="text/event-stream")


async def _stream(site: Site, campaign_id: str, after: int) -> AsyncIterator[str]:
    site.streams.append(campaign_id)
    try:
        yield "retry: 2000\n\n"
        shown, spoke = "", time.monotonic()
        while not site.closing():
            try:
                seen, shown_now = await run_in_threadpool(_look, site, campaign_id, after, shown)
            except WatcherError as error:
                # The store may be locked or moved for a moment: the page says so and the browser asks again.
                yield _event("problem", {"message": str(error)})
                return
            for text in _spoken(seen, shown_now, shown):
                yield text
                spoke = time.monotonic()
            after, shown = max(after, seen.last), shown_now
            if seen.state not in ("running", "prepared"):
                yield _event("end", {"state": seen.state})
                return
            if time.monotonic() - spoke > _KEEP_SECONDS:
                yield ": still here\n\n"
                spoke = time.monotonic()
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        site.streams.remove(campaign_id)


def _look(site: Site, campaign_id: str, after: int, shown: str) -> tuple[Shown, str]:
    seen = look(site.storage, campaign_id, after, known=shown)
    return seen, seen.mark


def _spoken(seen: Shown, now: str, before: str) -> Iterator[str]:
    for one in seen.events:
        yield _event("trail", {"html": str(trail_html([one]))}, number=one["seq"])
    if now != before and seen.face is not None:
        yield _event("face", {"html": str(seen.face), "state": seen.state})


def _event(kind: str, body: dict[str, Any], number: int | None = None) -> str:
    head = "" if number is None else f"id: {number}\n"
    return f"{head}event: {kind}\ndata: {json.dumps(body)}\n\n"


def _after(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InvalidValue("after", expected="the number of an event", got=repr(text[:60]))
    return int(text)
