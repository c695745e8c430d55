"""Serving: a socket of our own, one process, until a signal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import uvicorn

from watcherml.store.storage import Storage
from watcherml.ui.app import create_app
from watcherml.ui.hosts import address_of, bind, names_for
from watcherml.ui.site import Site

# Streams end by themselves when the server closes; what does not is cut off.
_LAST_WORDS_SECONDS = 2
_LOOK_SECONDS = 0.02


def serve(
    storage: Storage,
    *,
    host: str,
    port: int,
    allow_remote: bool,
    on_ready: Callable[[str], None],
) -> None:
    """Serve a store until a signal ends it; Ctrl-C raises KeyboardInterrupt when the last answer is out.

    ``on_ready`` gets the address once it is answered. Raises what ``hosts.bind`` raises.
    """
    made = bind(host, port, allow_remote=allow_remote)
    address = address_of(made)
    servers: list[uvicorn.Server] = []
    site = Site(
        storage,
        names=names_for(host, allow_remote=allow_remote),
        address=address,
        closing=lambda: any(one.should_exit for one in servers),
    )
    config = uvicorn.Config(
        create_app(site), log_level="warning", access_log=False, lifespan="off", ws="none", http="h11", loop="asyncio",
        server_header=False, proxy_headers=False, timeout_graceful_shutdown=_LAST_WORDS_SECONDS,
    )  # fmt: skip
    server = uvicorn.Server(config)
    servers.append(server)
    threading.Thread(target=_announce, args=(server, on_ready, address), daemon=True).start()
    with made:
        server.run(sockets=[made])


def _announce(server: uvicorn.Server, on_ready: Callable[[str], None], address: str) -> None:
    while not server.started and not server.should_exit:
        time.sleep(_LOOK_SECONDS)
    if server.started:
        on_ready(address)
