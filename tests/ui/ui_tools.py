"""The UI in this process and as the real program."""

import json
import signal
import subprocess
import sys
import warnings
from pathlib import Path

from watcherml.store.storage import Storage
from watcherml.ui.app import create_app
from watcherml.ui.site import Site

with warnings.catch_warnings():
    # From some version on it asks for another HTTP client; this one does.
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

ADDRESS = "http://127.0.0.1:7331"
OLD = Path(__file__).resolve().parents[1] / "data" / "store-0.1"


class Client(TestClient):
    """A browser that is on one of our pages: it names our host, and our origin where it changes something."""

    def __init__(self, folder):
        self.storage = Storage(folder)
        self.site = Site(self.storage)
        super().__init__(create_app(self.site), base_url=ADDRESS, follow_redirects=False)

    def change(self, path, *, token=None, headers=None, **fields):
        """Send a form as our own page does, with whatever is said otherwise."""
        form = {"token": self.site.token if token is None else token, **fields}
        return self.post(path, data=form, headers={"origin": ADDRESS, **(headers or {})})


class Served:
    """A running `watcher ui`."""

    def __init__(self, folder, *words):
        command = [sys.executable, "-m", "watcherml", "--data-dir", str(folder), "ui", "--port", "0", "--no-browser",
                   "--format", "json", *words]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        self.said = json.loads(line)
        self.address = self.said["address"]
        self.port = int(self.address.rpartition(":")[2])

    def interrupt(self):
        """Press Ctrl-C; returns the exit code and what was said on standard error."""
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors
