"""What a plan's panel has to know of the memory that the kernel still holds."""

from __future__ import annotations

from typing import Protocol


class Held(Protocol):
    """Memory of a failed cell that this kernel may still hold, see ``watcherml.notebook.held``."""

    @property
    def releasable(self) -> bool:
        """Whether ``free`` would give something back."""

    def words(self) -> str:
        """Return what is held; empty if nothing is known to be."""

    def free(self) -> str:
        """Give it back and say how much that was."""
