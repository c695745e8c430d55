"""Marking a failure as resolved: a note for people. It changes no capsule, no verdict and no digest."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from watcherml.api.removal import this_user
from watcherml.recorder.redact import redact_text
from watcherml.sealed.fields import Line, Name
from watcherml.sealed.record import checked
from watcherml.store import resolution
from watcherml.store.resolution import Resolution
from watcherml.store.storage import Storage


@dataclass(frozen=True)
class Resolved:
    """Where a failure stands: ``resolved_at`` in seconds since 1970, None while it is open.

    ``changed`` tells whether this call changed it. After a reopening ``before`` holds the mark that was taken away.
    """

    run_id: str
    failure_class: str
    resolved_at: float | None
    resolved_by: str | None
    resolved_note: str | None
    changed: bool
    before: dict[str, Any] | None = None

    def to_data(self) -> dict[str, Any]:
        """Return the fields as plain JSON values."""
        return {"kind": "resolution", "resolved": self.resolved_at is not None, **asdict(self)}


def resolve(
    run_id: str,
    *,
    by: str = "",
    note: str = "",
    reopen: bool = False,
    storage: Storage | str | os.PathLike[str] | None = None,
) -> Resolved:
    """Mark the failure of a run as resolved, or open it again; secrets in name and note are redacted.

    A failure that is marked already stays as it is marked: ``reopen`` takes the mark away first. ``by`` is a name of at
    most 400 characters, by default the user of this process, ``note`` at most 2,000 characters. Raises ``NotFound`` for
    an unknown run and for one that has no capsule, ``InvalidValue`` for a name or note that is too long, ``StoreError``
    for a store that cannot be written.
    """
    where = storage if isinstance(storage, Storage) else Storage(storage)
    who = redact_text(checked(Name, by.strip() if by else this_user(), "--by"))
    told = redact_text(checked(Line, note, "--note").strip())
    before = resolution.resolution(where, run_id)
    if reopen == (before.at is None):
        return _answer(before, changed=False)
    if reopen:
        resolution.mark(where, run_id, None)
    else:
        resolution.mark(where, run_id, where.clock(), who, told or None)
    # Read again: of two people who answer at once, one has been first.
    after = resolution.resolution(where, run_id)
    mine = after.at is None if reopen else (after.by, after.note) == (who, told or None)
    return _answer(after, changed=mine, before=before if reopen else None)


def _answer(found: Resolution, *, changed: bool, before: Resolution | None = None) -> Resolved:
    gone = (
        None if before is None else {"resolved_at": before.at, "resolved_by": before.by, "resolved_note": before.note}
    )
    return Resolved(found.run_id, found.failure_class, found.at, found.by, found.note, changed, gone)
