"""``Shown``: a value that a notebook shows as more than its bare repr.

The faces are made by a surface, which no value may import: ``api`` binds them to the port here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Faces = Callable[[Any], dict[str, Any]]
Display = Callable[[Any], None]
_faces: list[Faces] = []
_displays: list[Display] = []


def set_faces(faces: Faces | None, display: Display | None = None) -> None:
    """Set what makes a value's MIME bundle (``text/plain``, ``text/html`` and a view); None takes it back.

    ``display`` shows a value that is live; it raises ``NotImplementedError`` for one that its bundle says all of.
    """
    _faces[:] = [] if faces is None else [faces]
    _displays[:] = [] if display is None else [display]


class Shown:
    """Mixin for values that may end a cell. Without faces they are shown by their repr."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any] | None:
        return _faces[-1](self) if _faces else None

    def _ipython_display_(self, **_: Any) -> None:
        if not _displays:
            raise NotImplementedError  # IPython then shows the bundle in its usual way
        _displays[-1](self)

    def _repr_html_(self) -> str | None:
        found = (_faces[-1](self) if _faces else {}).get("text/html")
        return None if found is None else str(found)
