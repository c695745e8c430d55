"""Telling JupyterLab's sidebar which store a kernel uses: kept up to date from ``%load_ext`` to the kernel's end."""

from __future__ import annotations

import atexit
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from watcherml.api import record, registered
from watcherml.api.registered import Registration
from watcherml.notebook.session import Session
from watcherml.platform import this_process

_ATTRIBUTE = "_watcherml_registry"


class Registry:
    """The registration of one kernel. A folder that cannot be written costs the sidebar and nothing else."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._since = time.time()
        self._told: Path | None = None
        self._file: Path | None = None
        self._process = os.getpid()
        self._unlisten: Callable[[], None] = lambda: None

    def attach(self) -> None:
        """Register the store in use, and again whenever another one is used."""
        self._unlisten = record.on_start(lambda _run: self.update())
        self._session.shell.events.register("post_run_cell", self.post_run_cell)
        atexit.register(self.remove)
        self.update()

    def detach(self) -> None:
        """Take back what ``attach`` did."""
        self._unlisten()
        self._session.shell.events.unregister("post_run_cell", self.post_run_cell)
        atexit.unregister(self.remove)
        self.remove()

    def post_run_cell(self, result: Any) -> None:
        """Look whether the cell has changed the folder or the environment that say where the store is."""
        self.update()

    def update(self) -> None:
        """Write the registration if the store in use is another one than before; never raises."""
        if os.getpid() != self._process:
            return
        try:
            path = self._session.storage().path
            if path != self._told:
                self._told = path  # one try a store: a full disk is not asked again after every cell
                made = Registration(path, _kernel_id(), this_process(), self._since)
                self._file = registered.register(made)
        except Exception as problem:  # noqa: BLE001 - a cell must not hear of it; `%watcher status` counts it
            self._session.problems.append(f"{type(problem).__name__}: {problem}"[:2_000])

    def remove(self) -> None:
        """Remove the file; a forked child leaves its parent's alone."""
        if self._file is not None and os.getpid() == self._process:
            with contextlib.suppress(OSError):
                self._file.unlink(missing_ok=True)
            self._file = self._told = None


def attach(session: Session) -> None:
    """Register the store of a kernel. A shell without one has no front end that could look for it."""
    if getattr(session.shell, "kernel", None) is not None:
        registry = Registry(session)
        setattr(session.shell, _ATTRIBUTE, registry)
        registry.attach()


def detach(session: Session) -> None:
    """Remove the registration if there is one."""
    registry = getattr(session.shell, _ATTRIBUTE, None)
    if isinstance(registry, Registry):
        delattr(session.shell, _ATTRIBUTE)
        registry.detach()


def _kernel_id() -> str:
    """Return the id under which a server knows this kernel: the name of its connection file; empty if it has none."""
    try:
        from ipykernel.connect import get_connection_file

        return Path(get_connection_file()).stem.removeprefix("kernel-")
    except (ImportError, RuntimeError, OSError):
        return ""
