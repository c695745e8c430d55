"""``watcher ui``: the store in a browser, on this machine."""

from __future__ import annotations

import argparse
import os
import sys

from watcherml.cli.console import Console
from watcherml.cli.shared import add_format, as_json, deliver, storage_of

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 7331
_NOTES = """\
The UI shows what is recorded. It can name a run and mark a failure as resolved; recovery stays with the commands and
the SDK. It asks nobody who they are, so it listens to this machine only unless --allow-remote is given. Ctrl-C ends it
(exit code 130)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = _NOTES
    parser.add_argument("--host", default=DEFAULT_HOST, metavar="ADDRESS", help="default: %(default)s")
    parser.add_argument("--port", type=_port, default=DEFAULT_PORT, metavar="N",
                        help="default: %(default)s; 0 picks a free one")  # fmt: skip
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")
    parser.add_argument("--allow-remote", action="store_true",
                        help="also take a --host that others can reach: they can then read everything")  # fmt: skip
    add_format(parser, output=False)


def run(values: argparse.Namespace, console: Console) -> int:
    """Serve until Ctrl-C."""
    from watcherml.api.ui import load_ui

    storage = storage_of(values)
    entry = load_ui()

    def ready(address: str) -> None:
        document = {"kind": "ui", "address": address, "store": str(storage.path), "pid": os.getpid()}
        text = f"WatcherML shows {storage.path} at\n\n  {address}\n\nCtrl-C ends it.\n"
        deliver(values, console, {"text": lambda _color: text, "json": as_json(document, one_line=True)})
        if not values.no_browser:
            _open(address)

    if values.allow_remote:
        console.notice("--allow-remote: whoever can reach this address can read everything that is recorded here.")
    entry.serve(storage, host=values.host, port=values.port, allow_remote=values.allow_remote, on_ready=ready)
    return 0


def _open(address: str) -> None:
    # Without a desktop Python would open a text browser in this very terminal.
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return
    import webbrowser

    try:
        webbrowser.open(address)
    except (webbrowser.Error, OSError):
        pass  # the address has been printed


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to 65535, got {text[:40]!r}")
    return int(text)
