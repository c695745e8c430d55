"""``Shown``: a value that a notebook shows as more than its bare repr.

The faces are made by a surface, which no value may import: ``api`` binds them to the port here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Faces = Callable[[Any], dict[str, Any]]
_faces: list[Faces] = []


def set_faces(faces: Faces | None) -> None:
    """Set what makes a value's MIME bundle (``text/plain``, ``text/html`` and a view); None takes it back."""
    _faces[:] = [] if faces is None else [faces]


class Shown:
    """Mixin for values that may end a cell. Without faces they are shown by their repr."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any] | None:
        return _faces[-1](self) if _faces else None

    def _repr_html_(self) -> str | None:
        found = (_faces[-1](self) if _faces else {}).get("text/html")
        return None if found is None else str(found)
