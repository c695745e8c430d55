"""Asking a Jupyter server, and registering stores as a kernel does."""

import time

import httpx

from watcherml.api import registered
from watcherml.api.registered import Registration
from watcherml.platform import this_process

FOLDERS = ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR")
API = "/watcherml/api/stores"


class Server:
    """A server as somebody sees it who has its token."""

    def __init__(self, address, token):
        self.address, self.token = address, token

    def get(self, path, **options):
        options.setdefault("headers", {"Authorization": f"token {self.token}"})
        return httpx.get(self.address + path, timeout=60, **options)

    def post(self, path, **options):
        options.setdefault("headers", {"Authorization": f"token {self.token}"})
        return httpx.post(self.address + path, timeout=60, **options)

    def browser(self):
        """A client that is logged in by a cookie, as a browser is."""
        client = httpx.Client(base_url=self.address, timeout=60, follow_redirects=True)
        client.get("/login").raise_for_status()  # a page with a form brings the token against forgery
        client.get("/api/status", params={"token": self.token}).raise_for_status()
        return client


def register(path, kernel_id="kernel-of-the-test", process=None, since=None):
    """Register a store for this process, or another one, and return the id that browsers use for it."""
    made = Registration(path, kernel_id, process or this_process(), time.time() if since is None else since)
    registered.register(made)
    return made.store_id
