"""The runs that are open in this kernel, and what happens to one that a later ``init()`` leaves behind."""

from __future__ import annotations

import ast
import linecache
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

from watcherml.api.record import Run

_OPENERS = ("init", "Run", "start")


@dataclass
class OpenRun:
    """A run of this kernel. ``cell`` is the number of the cell that started it, None between cells."""

    run: Run
    cell: int | None
    main_thread: bool
    replaced_by: str | None = None
    last_error: str | None = None  # the type of the error of its last cell, None if that cell went well
    failure_told: bool = False


class ActiveRuns:
    """Follows the runs that start in this process. ``tell`` shows a sentence to the person."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._open: list[OpenRun] = []

    def newest(self) -> Run | None:
        """Return the run that was started last and is still open."""
        return next((one.run for one in reversed(self._open) if one.run.status == "running"), None)

    def started(self, run: Run, cell: int | None, cell_source: str, names: Mapping[str, Any]) -> None:
        """Take in a run that has just started, and end the unfinished run that it replaces.

        A run opened by ``with`` replaces nothing, and a run that is open in a ``with`` is not replaced. Where that
        cannot be seen yet it is settled at the end of the cell, when every ``with`` of the cell has been left.
        """
        found = OpenRun(run, cell, threading.current_thread() is threading.main_thread())
        if found.main_thread and cell is not None and not opened_by_with(caller_of_package()):
            for earlier in self._replaceable():
                if earlier.cell == cell or _named_in_with(earlier.run, cell_source, names):
                    earlier.replaced_by = earlier.replaced_by or run.run_id
                else:
                    self._replace(earlier, run.run_id)
        self._open.append(found)

    def begin_cell(self) -> None:
        """Forget the runs that ended before this cell."""
        self._open = [one for one in self._open if one.run.status == "running"]

    def of_cell(self, cell: int | None) -> Run | None:
        """Return the run that a finished cell belongs to: one it started, else the newest that was open in it."""
        mine = [one.run for one in self._open if one.cell == cell and cell is not None]
        return mine[-1] if mine else next((one.run for one in reversed(self._open)), None)

    def take_failed(self) -> Run | None:
        """Return the run that failed last while the current cell was executed; each is returned once."""
        failed = [one for one in self._open if one.run.status == "failed" and not one.failure_told]
        for one in failed:
            one.failure_told = True
        return failed[-1].run if failed else None

    def end_cell(self, error_type: str | None) -> None:
        """Settle what the end of the cell has made clear."""
        for one in self._open:
            if one.run.status == "running":
                one.last_error = error_type
        for earlier in self._replaceable():
            if earlier.replaced_by is not None:
                self._replace(earlier, earlier.replaced_by)

    def _replaceable(self) -> list[OpenRun]:
        # A run of another thread, or one that started between cells, is somebody's `with` as likely as not.
        return [one for one in self._open if one.run.status == "running" and one.main_thread and one.cell is not None]

    def _replace(self, earlier: OpenRun, by: str) -> None:
        run, storage = earlier.run, earlier.run.storage
        reason = f"superseded by {by}"
        if earlier.last_error is not None:
            # The exception is gone, and its capsule is on record; the first ending of a run counts.
            why = f"{reason}; its last cell ended with {earlier.last_error}"
            storage.runs.end(run.run_id, "failed", why, storage.clock(), run.last_step)
        run.interrupt(reason)
        word = "failed, as its last cell did" if earlier.last_error is not None else "interrupted"
        self._tell(f"WatcherML: run {run.run_id} was not finished. It ends as {word}: {reason}.")


def caller_of_package() -> FrameType | None:
    """Return the innermost frame outside this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "watcherml":
        frame = frame.f_back
    return frame


def opened_by_with(frame: FrameType | None) -> bool:
    """Tell whether the call that a frame is making stands in the head of a ``with``: ``with init(...) as run:``."""
    if frame is None:
        return False
    tree = _parsed("".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals)))
    if tree is None:
        return False
    line = frame.f_lineno
    return any(
        isinstance(call, ast.Call) and _called(call) in _OPENERS and call.lineno <= line <= (call.end_lineno or 0)
        for item in _with_items(tree)
        for call in ast.walk(item.context_expr)
    )


def _named_in_with(run: Run, source: str, names: Mapping[str, Any]) -> bool:
    """Tell whether a cell has ``with NAME:`` for a name that is this run."""
    tree = _parsed(source)
    return tree is not None and any(
        isinstance(item.context_expr, ast.Name) and names.get(item.context_expr.id) is run for item in _with_items(tree)
    )


def _with_items(tree: ast.AST) -> list[ast.withitem]:
    return [item for node in ast.walk(tree) if isinstance(node, (ast.With, ast.AsyncWith)) for item in node.items]


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _parsed(source: str) -> ast.AST | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):  # magics, or a null byte
        return None
