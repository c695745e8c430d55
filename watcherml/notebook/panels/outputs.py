"""The outputs of a cell that show a live panel, each replaced by a static face once nothing in it is live any more.

A saved notebook keeps what an output holds. JupyterLab shows of a widget whose kernel is gone "model not found", even
if the same output holds HTML; so the widget's view is taken out when there is nothing left to click or to follow.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import threading
import weakref
from collections.abc import Callable
from typing import Any

VIEW = "application/vnd.jupyter.widget-view+json"

_shown: weakref.WeakSet[Outputs] = weakref.WeakSet()


class Outputs:
    """Where one panel is shown. ``last_face`` makes what stays in its outputs when the kernel's process ends."""

    def __init__(self, last_face: Callable[[], dict[str, Any]]) -> None:
        self._last_face = weakref.WeakMethod(last_face)  # of the panel that holds this
        self._lock = threading.Lock()
        self._places: list[tuple[Any, dict[str, Any]]] = []  # a publisher, and what names the output to a front end
        self._process = os.getpid()

    def add(self, publisher: Any, bundle: dict[str, Any]) -> None:
        """Show a bundle with a widget's view below the cell, under a name by which it can be replaced."""
        # The model's name finds an output in a page that was opened after it was shown; neither is ever saved.
        model = bundle[VIEW]["model_id"]
        transient = {"display_id": f"watcherml-{secrets.token_hex(8)}", "watcherml_model_id": model}
        publisher.publish(bundle, transient=transient)
        if hasattr(publisher, "session"):  # another one, as that of %%capture, keeps what it gets to itself
            with self._lock:
                self._places.append((publisher, transient))
            _shown.add(self)

    def replace(self, face: Callable[[], dict[str, Any]]) -> None:
        """Put a static face into every output, once; does nothing where there is none left."""
        with self._lock:
            places, self._places = self._places, []
        if not places or os.getpid() != self._process:
            return
        try:
            bundle = face()  # which may look at the store, and come here again
        except BaseException:
            with self._lock:
                self._places += places
            raise
        for publisher, transient in places:
            publisher.publish(bundle, transient=transient, update=True)

    def end(self) -> None:
        """Put what is known last into the outputs; never raises: the process ends."""
        made = self._last_face()
        if made is not None:
            with contextlib.suppress(Exception):
                self.replace(made)


def _end_all() -> None:
    for one in list(_shown):
        one.end()


# Before ipykernel closes its sockets: it has registered that earlier, and what is registered last is called first.
atexit.register(_end_all)
