"""What a store has refused of a run, kept in the recording process until the store answers, or until the run ends.

A store that is locked or full refuses for a while. Facts are remembered even when they were taken: a store that is
removed while a run goes on gets them again.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

# More than this of stored bytes is not kept: a patch is seldom larger.
_MOST_BLOB_BYTES = 8 << 20


class Held:
    """What is kept of one run."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.device: dict[str, Any] | None = None
        self.facts_refused = False
        self.capsules: list[dict[str, Any]] = []

    def note(self, facts: Mapping[str, Any], device: Mapping[str, Any] | None) -> None:
        """Remember facts of the run."""
        self.facts.update(facts)
        if device is not None:
            self.device = dict(device)


class Kept:
    """Of one store object: what it keeps, by run. Only runs that this process records are kept."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._blobs: dict[str, tuple[str, bytes]] = {}

    def watch(self, run_id: str) -> None:
        """Keep what is refused of a run from now on."""
        self._held.setdefault(run_id, Held())

    def forget(self, run_id: str) -> None:
        """Keep nothing of a run any more."""
        self._held.pop(run_id, None)
        if not self._held:
            self._blobs.clear()

    def of(self, run_id: str) -> Held:
        """Return what is kept of a run; of an unknown one something that nobody keeps."""
        return self._held.get(run_id) or Held()

    def refused_blob(self, digest: str, media_type: str, data: bytes) -> bool:
        """Keep bytes; returns False if nobody records a run here, or they are too many."""
        if not self._held or sum(len(one) for _, one in self._blobs.values()) + len(data) > _MOST_BLOB_BYTES:
            return False
        self._blobs[digest] = (media_type, data)
        return True

    def owes(self, run_id: str) -> bool:
        """Whether the store has refused something of a run that is kept."""
        held = self.of(run_id)
        return bool(held.facts_refused or held.capsules or self._blobs)

    def settled(self, run_id: str, document: Mapping[str, Any]) -> None:
        """Note that the store has taken a document; what it refused meanwhile is still kept."""
        held = self.of(run_id)
        if (held.facts, held.device) == (document.get("facts"), document.get("device")):
            held.facts_refused = False
        for capsule in document.get("capsules") or ():
            with suppress(ValueError):
                held.capsules.remove(capsule)
        for digest, _, _ in document.get("blobs") or ():
            self._blobs.pop(digest, None)

    def to_data(self, run_id: str) -> dict[str, Any]:
        """Return what is kept as plain JSON values: ``facts``, ``device``, ``capsules`` and ``blobs``."""
        held = self.of(run_id)
        blobs = [
            [digest, media, b2a_base64(data, newline=False).decode()]
            for digest, (media, data) in list(self._blobs.items())
        ]
        return {"facts": dict(held.facts), "device": held.device, "capsules": list(held.capsules), "blobs": blobs}
