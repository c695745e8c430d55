"""The stores that a browser may ask for: those that living kernels have registered, by their ids."""

from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING, Any

from watcherml.api import registered
from watcherml.api.registered import Registration
from watcherml.errors import NotFound
from watcherml.report.safe import one_line

if TYPE_CHECKING:
    from watcherml.store.storage import Storage

_ID = re.compile(r"[0-9a-f]{32}")


class Stores:
    """Handles on the registered stores, kept from one request to the next; used by several threads."""

    def __init__(self) -> None:
        self._opened: dict[str, Storage] = {}
        self._lock = threading.Lock()

    def listing(self) -> list[dict[str, Any]]:
        """Return one entry a store: id, name, path, kernels, since (seconds since 1970), exists, older."""
        grouped: dict[str, list[Registration]] = {}
        for one in self._registered():
            grouped.setdefault(one.store_id, []).append(one)
        return [self._entry(store_id, made) for store_id, made in grouped.items()]

    def find(self, store_id: str) -> Storage:
        """Return a registered store; ``NotFound`` for any other id."""
        if _ID.fullmatch(store_id):
            for one in self._registered():
                if one.store_id == store_id:
                    return self._open(one)
        raise NotFound(
            f"no notebook uses the store {one_line(store_id, 60)!r}",
            expected="a store of a kernel that runs",
            remedy="Run %load_ext watcherml in a cell of the notebook that uses it.",
        )

    def _registered(self) -> list[Registration]:
        found = registered.registrations(time.time())
        ids = {one.store_id for one in found}
        with self._lock:
            for gone in self._opened.keys() - ids:
                del self._opened[gone]
        return found

    def _open(self, made: Registration) -> Storage:
        with self._lock:
            if made.store_id not in self._opened:
                from watcherml.api import glance  # with the first store: no server has to wait for it at its start

                self._opened[made.store_id] = glance.open_store(made.path)
            return self._opened[made.store_id]

    def _entry(self, store_id: str, made: list[Registration]) -> dict[str, Any]:
        storage, path = self._open(made[0]), made[0].path
        # Most folders are called .watcherml: what tells them apart is where they are.
        name = path.parent.name if path.name == ".watcherml" else path.name
        return {
            "id": store_id,
            "name": one_line(name, 200) or str(path),
            "path": one_line(path),
            "kernels": [one.kernel_id for one in made if one.kernel_id],
            "since": min(one.since for one in made),
            "exists": storage.exists,
            "older": storage.is_older,
        }
