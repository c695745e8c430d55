"""``Pending``: the evidence of a failure that no run recorded, until the person asks for it to be put on record.

It is read at the failure, as a capsule in memory: releasing the cell's memory empties the frames it is read from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watcherml.api.record import Run
from watcherml.forensics.capsule import Capsule
from watcherml.forensics.capture import OOM_CLASSES, capture
from watcherml.forensics.evidence import Evidence, missing
from watcherml.store.storage import Storage

if TYPE_CHECKING:
    from watcherml.notebook.session import Session

# Pieces that come from a run: metrics, samples, git, packages, dataset.
_OF_A_RUN = frozenset({"EV-2", "EV-4", "EV-7", "EV-8", "EV-9", "EV-10"})


@dataclass(frozen=True)
class Pending:
    """A failure that is not on record; strings and numbers only.

    ``cell`` is the number of the cell it came from: the cells up to it, which are kept anyway, are no part of
    ``capsule`` yet, since most failures are typos that nobody will ask for. ``project`` and ``config`` are those of a
    run whose store took nothing of it, None where no run was open.
    """

    capsule: Capsule
    cell: int
    project: str | None = None
    config: Mapping[str, Any] | None = None

    @property
    def oom(self) -> bool:
        """Whether a device's memory ran out, which a recovery can start from."""
        return self.capsule.failure.class_ in OOM_CLASSES


def remember(session: Session, error: BaseException) -> Pending:
    """Read the evidence of a failure without a run. Nothing is written, and no store is made."""
    storage = session.storage()
    # Below a file nothing can be made: reading for evidence must not leave a store where there is none.
    run = Run(None, {}, storage if storage.exists else Storage(Path(__file__) / "none"), on_failure=None, quiet=True)
    session.recorded = session.pending = None
    capsule = capture(run, error, None)
    capsule = capsule.replace(evidence=tuple(_plainly(piece) for piece in capsule.evidence))
    session.pending = Pending(capsule, session.cells.count)
    return session.pending


def _plainly(piece: Evidence) -> Evidence:
    if piece.status == "missing" and piece.id in _OF_A_RUN:
        return missing(piece.id, "No run was open at the failure.")
    return piece
