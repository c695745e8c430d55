"""The local web UI as the command line reaches it: surfaces never import each other, so it is found by its name."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Protocol, cast

from watcherml.errors import MissingDependency
from watcherml.store.storage import Storage

_ENTRY = "watcherml.ui.serve"
_NEEDED = ("starlette", "uvicorn", "jinja2")


class Entry(Protocol):
    """What the UI's module offers."""

    def serve(
        self,
        storage: Storage,
        *,
        host: str,
        port: int,
        allow_remote: bool,
        on_ready: Callable[[str], None],
    ) -> None:
        """Serve the store until a signal ends it; ``on_ready`` gets the address once it answers."""


def load_ui() -> Entry:
    """Import the web UI. Raises ``MissingDependency`` with the install command where its packages are not installed."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingDependency(
            f"the web UI needs {', '.join(_NEEDED)}",
            expected="all of them in this environment",
            got=f"no {', '.join(missing)}",
            remedy='Install them from the clone: pip install ".[ui]"',
        )
    return cast(Entry, importlib.import_module(_ENTRY))
