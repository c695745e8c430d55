"""Memory that a notebook's kernel still holds after a failed cell, and that trials on the same device would miss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from watcherml.forensics.release import release_frames
from watcherml.report.units import format_bytes

if TYPE_CHECKING:
    from watcherml.notebook.session import Session

_MOST_NAMES = 3


class HeldMemory:
    """What a session knows of the memory of its last failed cell."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def releasable(self) -> bool:
        """Whether the failed cell's frames are still there and ``free`` would let them go."""
        return self._session.frames_kept

    def words(self) -> str:
        """Return what is held in a sentence or two; empty if nothing is known to be."""
        if self.releasable:
            return (
                "The failed cell still holds its memory in this kernel, and trials on the same device would miss it."
                " `%watcher free` gives it back."
            )
        kept = self._session.released.kept if self._session.released is not None else ()
        names = ", ".join(f"{one.name} ({format_bytes(one.bytes)})" for one in kept[:_MOST_NAMES])
        return f"Right after the failure this kernel still held {names}; trials start beside it." if names else ""

    def free(self) -> str:
        """Let the failed cell's frames go and return in a sentence what that gave back."""
        session = self._session
        release = session.released = release_frames(None, session.shell)
        session.frames_kept = False  # where no exception is remembered any more, nothing of it can be let go of
        return release.sentence
