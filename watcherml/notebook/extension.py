"""Loading and unloading: ``%load_ext watcherml`` registers hooks and magics in one shell, once."""

from __future__ import annotations

from typing import Any

from watcherml.notebook import completion, magics, registry, run_cell
from watcherml.notebook.session import Session
from watcherml.recorder.exits import in_cell

_NAME = "watcher"


def load(shell: Any) -> Session:
    """Load the extension into a shell and return its session; loading again changes nothing."""
    present = Session.of(shell)
    if present is not None:
        return present
    session = Session(shell)
    session.attach()
    shell.events.register("pre_run_cell", session.pre_run_cell)
    shell.events.register("post_run_cell", session.post_run_cell)
    shell.register_magic_function(magics.line_magic(session), "line", _NAME)
    shell.register_magic_function(magics.cell_magic(session), "cell", _NAME)
    shell.input_transformers_cleanup.append(run_cell.transform)
    session.completion = completion.Completion(session)
    session.completion.register()
    registry.attach(session)
    if in_cell():
        # The hook before this very cell has been missed; a run that the cell opens belongs to it all the same.
        session.cells.begin(_last_input(shell), None)
    return session


def unload(shell: Any) -> None:
    """Take everything back that ``load`` registered; open runs stay open. Does nothing if it is not loaded."""
    session = Session.of(shell)
    if session is None:
        return
    registry.detach(session)
    session.detach()
    shell.events.unregister("pre_run_cell", session.pre_run_cell)
    shell.events.unregister("post_run_cell", session.post_run_cell)
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop(_NAME, None)
    if run_cell.transform in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.remove(run_cell.transform)
    if session.completion is not None:
        session.completion.unregister()


def _last_input(shell: Any) -> str:
    inputs = getattr(shell.history_manager, "input_hist_raw", None) or [""]
    return str(inputs[-1])
