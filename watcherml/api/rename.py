"""Naming a run: a note for people. It changes no id, no capsule, no verdict and no digest."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from watcherml.recorder.redact import redact_text
from watcherml.sealed.fields import Name
from watcherml.sealed.record import checked
from watcherml.store import title as titles
from watcherml.store.storage import Storage


@dataclass(frozen=True)
class Renamed:
    """What a run is called now and was called before; None stands for no name beside its id."""

    run_id: str
    title: str | None
    before: str | None

    @property
    def changed(self) -> bool:
        """Whether this call changed it."""
        return self.title != self.before

    def to_data(self) -> dict[str, Any]:
        """Return the fields as plain JSON values."""
        return {"kind": "rename", "changed": self.changed, **asdict(self)}


def rename(run_id: str, title: str, *, storage: Storage | str | os.PathLike[str] | None = None) -> Renamed:
    """Give a run a name of at most 400 characters; an empty one takes it away. Secrets in it are redacted.

    Raises ``NotFound`` for an unknown run, ``InvalidValue`` for a name that is too long, ``StoreError`` for a store
    that cannot be written.
    """
    where = storage if isinstance(storage, Storage) else Storage(storage)
    # One line, however it was typed or pasted.
    told = " ".join(title.split())
    name = redact_text(checked(Name, told, "title")) if told else None
    before = titles.title(where, run_id)
    if name != before:
        titles.set_title(where, run_id, name)
    return Renamed(run_id, name, before)
