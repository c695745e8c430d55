"""The wiring behind every public name."""

from __future__ import annotations

import importlib
from typing import Any

from watcherml.sealed.shown import set_faces

_FACES = "watcherml.notebook.faces"


def _bundle(value: Any) -> dict[str, Any]:
    """Return a value's faces. The notebook surface is found by its name: nothing here imports a surface."""
    found: dict[str, Any] = importlib.import_module(_FACES).bundle(value)
    return found


def _display(value: Any) -> None:
    """Show a value that is live; ``NotImplementedError`` for one that is not."""
    importlib.import_module(_FACES).display(value)


set_faces(_bundle, _display)
