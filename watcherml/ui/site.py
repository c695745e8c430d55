"""What every page knows: the store, the token of this server's forms, where it is served, and when it has to end."""

from __future__ import annotations

import hmac
import secrets
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from watcherml.errors import InvalidValue
from watcherml.sealed.fields import CampaignId, RunId
from watcherml.sealed.record import checked
from watcherml.store.storage import Storage
from watcherml.ui.hosts import Names


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Site:
    """One server over one store. ``token`` is new with every start; ``closing`` tells when streams have to end."""

    storage: Storage
    names: Names = field(default_factory=Names)
    address: str = ""
    closing: Callable[[], bool] = _never
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    started: float = field(default_factory=time.time)
    # The campaigns that open pages follow, one entry a stream.
    streams: list[str] = field(default_factory=list, repr=False)

    def holds(self, token: str) -> bool:
        """Tell whether a form carries the token of this server."""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode())

    def command(self, *words: str) -> str:
        """Return a command on this store, quoted for a shell."""
        return shlex.join(["watcher", "--data-dir", str(self.storage.path), *words])

    def run_id(self, text: str) -> str:
        """Return the id of a run; ``InvalidValue`` for text that is none, a path for instance."""
        return self._id(text, "run", RunId)

    def campaign_id(self, text: str) -> str:
        """Return the id of a campaign; ``InvalidValue`` for text that is none."""
        return self._id(text, "campaign", CampaignId)

    def _id(self, text: str, what: str, kind: object) -> str:
        if self.storage.is_older:
            return text  # 0.1 gave ids as it liked; there they are looked up and never become names of files
        try:
            return str(checked(kind, text, what))
        except InvalidValue as error:
            remedy = f"The list of {what}s links to all of them."
            got = repr(text[:100])
            raise InvalidValue(f"the id of a {what}", expected=error.expected, got=got, remedy=remedy) from None
