"""The endpoints under ``/watcherml/api/``, for who is logged in to the server.

==========================================  ===============================================================
``GET  stores``                             the registered stores
``GET  stores/STORE/overview``              the newest runs, failures and campaigns of one
``GET  stores/STORE/runs/RUN``              a page; also ``failures/RUN`` and ``campaigns/CAMPAIGN``
``POST stores/STORE/campaigns/CAMPAIGN/stop``  ask a running campaign to end; nothing else changes anything
==========================================  ===============================================================

A store is read in a thread, so that a slow disk holds up nobody's kernel. Every error is JSON: ``{"error": {code,
message, expected, got, remedy}}``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

from watcherml.errors import InvalidRecord, InvalidValue, NotFound, StoreError, TrustError, WatcherError
from watcherml.jupyter.stores import Stores

Answer = dict[str, Any]
ASKED_BY = "the JupyterLab sidebar"
_KINDS = ("runs", "failures", "campaigns")


def add_handlers(app: Any) -> None:
    """Add the endpoints to a server's application."""
    given = {"stores": Stores()}
    one = "stores/([^/]+)"
    routes = [
        ("stores", ListingHandler),
        (f"{one}/overview", OverviewHandler),
        (f"{one}/({'|'.join(_KINDS)})/([^/]+)", ViewHandler),
        (f"{one}/campaigns/([^/]+)/stop", StopHandler),
    ]
    base = app.web_app.settings["base_url"]
    handlers = [(url_path_join(base, "watcherml", "api", path), handler, given) for path, handler in routes]
    app.web_app.add_handlers(".*$", handlers)


class Handler(APIHandler):
    """What the endpoints share: who may ask, work in a thread, and errors as data."""

    auth_resource = "watcherml"
    _track_activity = False  # a sidebar that looks every two seconds must not keep an idle server from being culled

    def initialize(self, stores: Stores) -> None:
        """Take the registered stores, which all handlers share."""
        self.stores = stores

    async def reply(self, work: Callable[..., Answer], *values: Any) -> None:
        """Answer with what ``work`` returns, or with its error."""
        try:
            # What is no JSON (a NaN in a damaged store) is an error too: a browser could read none of the answer.
            answer = json.dumps(await asyncio.to_thread(work, *values), allow_nan=False)
        except WatcherError as error:
            self.set_status(_status(error))
            answer = json.dumps({"error": error.as_data()})
        except Exception as error:  # a browser gets an answer, whatever went wrong
            self.log.warning("watcherml: %s %s failed", self.request.method, self.request.path, exc_info=True)
            self.set_status(500)
            words = f"this could not be read ({type(error).__name__})"
            told = WatcherError(words, remedy="The log of the Jupyter server says more.")
            answer = json.dumps({"error": told.as_data()})
        self.set_header("Cache-Control", "no-store")
        self.finish(answer)


class ListingHandler(Handler):
    """``stores``."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer with the registered stores."""
        await self.reply(lambda: {"stores": self.stores.listing()})


class OverviewHandler(Handler):
    """``stores/STORE/overview``."""

    @web.authenticated
    @authorized
    async def get(self, store_id: str) -> None:
        """Answer with the newest of each list."""
        await self.reply(_overview, self.stores, store_id)


class ViewHandler(Handler):
    """``stores/STORE/runs/RUN``, ``failures/RUN`` and ``campaigns/CAMPAIGN``."""

    @web.authenticated
    @authorized
    async def get(self, store_id: str, kind: str, name: str) -> None:
        """Answer with a page."""
        await self.reply(_view, self.stores, store_id, kind, name)


class StopHandler(Handler):
    """``stores/STORE/campaigns/CAMPAIGN/stop``."""

    @web.authenticated
    @authorized
    async def post(self, store_id: str, campaign_id: str) -> None:
        """Ask a running campaign to end; ``was`` says where it stood."""
        await self.reply(_stop, self.stores, store_id, campaign_id)


# What reads a store is imported by the first question: every start of a server would wait for it otherwise.


def _overview(stores: Stores, store_id: str) -> Answer:
    from watcherml.jupyter import rows

    return rows.overview(stores.find(store_id))


def _view(stores: Stores, store_id: str, kind: str, name: str) -> Answer:
    from watcherml.jupyter import views

    make = {"runs": views.run, "failures": views.failure, "campaigns": views.campaign}[kind]
    return make(stores.find(store_id), name)


def _stop(stores: Stores, store_id: str, campaign_id: str) -> Answer:
    from watcherml.api.glance import stop_campaign

    return {"was": stop_campaign(stores.find(store_id), campaign_id, ASKED_BY)}


def _status(error: WatcherError) -> int:
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, StoreError):
        return 503
    if isinstance(error, (InvalidRecord, TrustError)):
        return 409  # what is on record does not hold together
    return 400 if isinstance(error, InvalidValue) else 500
