"""The JupyterLab sidebar's part in Jupyter's server; ``extension/`` is its part in the browser."""

from __future__ import annotations

from typing import Any


def _load_jupyter_server_extension(app: Any) -> None:
    """Add the endpoints to a server; it calls this at its start."""
    from watcherml.jupyter.handlers import add_handlers

    add_handlers(app)
