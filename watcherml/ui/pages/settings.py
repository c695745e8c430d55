"""Settings: what is shown, from where, and what this server may do. Only the look can be set, in the browser alone."""

from __future__ import annotations

import platform
from typing import Any

from starlette.requests import Request

from watcherml import __version__
from watcherml.report.units import format_bytes, format_time
from watcherml.store.header import read_header
from watcherml.store.migrate import SCHEMA_VERSION
from watcherml.store.storage import Storage
from watcherml.ui.render import Page
from watcherml.ui.site import Site


def show(site: Site, request: Request) -> Page:
    """Return the page; it opens without a store, too."""
    values = {
        "place": _place(site.storage),
        "serving": [
            ("Address", site.address or str(request.base_url).rstrip("/")),
            ("Answers to", ", ".join(sorted(site.names.names)) + (", every address" if site.names.any_address else "")),
            ("Reachable by", "whoever reaches this address" if site.names.any_address else "this machine only"),
            ("Since", format_time(site.started)),
            ("Pages that follow a campaign", str(len(site.streams))),
        ],
        "program": [("WatcherML", __version__), ("Python", platform.python_version()), ("System", platform.system())],
    }
    return Page("settings.html", "/settings", "Settings", values)


def _place(storage: Storage) -> list[tuple[str, str]]:
    found = [("Folder", str(storage.path))]
    database = storage.database
    if not storage.exists:
        return [*found, ("State", "no store is there yet; the first recorded run makes one")]
    path = database.older_path if storage.is_older else database.path
    found.append(("File", path.name))
    try:
        found.append(("Size", format_bytes(path.stat().st_size)))
        header: Any = None if storage.is_older else read_header(path)
    except OSError as error:
        return [*found, ("State", f"cannot be read: {error.strerror}")]
    if storage.is_older:
        return [*found, ("State", "written by WatcherML 0.1: shown, never written; its verdicts are claims of 0.1")]
    if header is not None:
        old = f", shown as version {SCHEMA_VERSION}" if database.outdated else ""
        found.append(("Schema", f"version {header.schema}{old}"))
        found.append(("Journal", "write-ahead log" if header.wal else "rollback journal"))
    found.append(("State", "can be written" if storage.writable else "read-only: nothing can be changed here"))
    if database.why_plain:
        found.append(("Plain files", f"no log and no mapped memory: {database.why_plain}"))
    return found
