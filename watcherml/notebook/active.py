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
_OF_THE_SHELL = ("IPython", "ipykernel")


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
        waiting = self._replaceable() if found.main_thread and cell is not None else []
        if waiting and not opened_by_with(sys._getframe()):
            for earlier in waiting:
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


def opened_by_with(frame: FrameType | None) -> bool:
    """Tell whether a call in progress stands in the head of a ``with``: ``with init(...) as run:``, or a helper's.

    Looked at are the frames from this one to the cell's own, as source text: no frame is kept, no variable is read.
    """
    innermost = True
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package in _OF_THE_SHELL:
            return False
        if package != "watcherml":
            if _in_head(frame, innermost):
                return True
            innermost = False
        frame = frame.f_back
    return False


def _in_head(frame: FrameType, innermost: bool) -> bool:
    """Tell whether a frame is at the head of a ``with``; the innermost one has to open a run there by its looks."""
    tree = _parsed("".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals)))
    if tree is None:
        return False
    heads = [item.context_expr for item in _with_items(tree)]
    here = [head for head in heads if head.lineno <= frame.f_lineno <= (head.end_lineno or 0)]
    if innermost:
        # `with init():`, or the start of a prepared run by `with run:`.
        return any(
            isinstance(head, (ast.Name, ast.Attribute))
            or any(isinstance(one, ast.Call) and _called(one) in _OPENERS for one in ast.walk(head))
            for head in here
        )
    return any(isinstance(head, ast.Call) for head in here)


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
