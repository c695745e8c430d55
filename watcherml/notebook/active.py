"""The runs that are open in this kernel, and what happens to one that a later ``init()`` leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from watcherml.api.record import Run


@dataclass
class OpenRun:
    """A run of this kernel. ``cell`` is the number of the cell that started it, None between cells."""

    run: Run
    cell: int | None
    main_thread: bool
    thread: int  # the identity of the thread that started it
    last_error: str | None = None  # the type of the error of its last cell, None if that cell went well
    failure_told: bool = False

    @property
    def bare(self) -> bool:
        """Whether a cell started it and no ``with`` will end it; a thread's run is that thread's business."""
        return self.main_thread and self.cell is not None and not self.run.entered


class ActiveRuns:
    """Follows the runs that start in this process. ``tell`` shows a sentence to the person."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._open: list[OpenRun] = []
        self._changing = threading.Lock()  # runs of threads start while cells come and go

    def newest(self) -> Run | None:
        """Return the run that was started last and is still open."""
        return next((one.run for one in reversed(self._open) if one.run.status == "running"), None)

    def started(self, run: Run, cell: int | None) -> None:
        """Take in a run that has just started in a cell, or between cells (None)."""
        here = threading.current_thread()
        with self._changing:
            self._open.append(OpenRun(run, cell, here is threading.main_thread(), threading.get_ident()))

    def adopt(self, run: Run) -> None:
        """Take in a run that was open before anybody listened: of a cell before the first one that is known."""
        with self._changing:
            self._open.append(OpenRun(run, 0, run.thread == threading.main_thread().ident, run.thread))

    def begin_cell(self) -> None:
        """Forget the runs that ended before this cell."""
        with self._changing:
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

    def told(self, run: Run) -> None:
        """Leave out of ``take_failed`` a run whose failure is shown by whoever records it."""
        for one in self._open:
            one.failure_told = one.failure_told or one.run is run

    def of_thread(self) -> Run | None:
        """Return the run that this thread started last and that is open, or has failed and was not told of yet."""
        ours = [one for one in self._open if one.thread == threading.get_ident() and not one.failure_told]
        found = next((one for one in reversed(ours) if one.run.status in ("running", "failed")), None)
        if found is None:
            return None
        found.failure_told = True
        return found.run

    def end_cell(self, cell: int | None, error_type: str | None) -> None:
        """End the unfinished runs that a bare ``init()`` of this cell has replaced.

        Decided at the end of the cell, when it is known which runs a ``with`` took care of.
        """
        bare = [one for one in self._open if one.bare]
        mine = [one for one in bare if one.cell == cell and one.run.status != "success"]
        for earlier in bare[: bare.index(mine[-1])] if mine else []:
            if earlier.run.status == "running":
                self._replace(earlier, mine[-1].run.run_id)
        for one in self._open:
            if one.run.status == "running":
                one.last_error = error_type

    def _replace(self, earlier: OpenRun, by: str) -> None:
        run, reason = earlier.run, f"superseded by {by}"
        if earlier.last_error is not None:
            # The exception is gone, and its capsule is on record.
            run.interrupt(f"{reason}; its last cell ended with {earlier.last_error}", status="failed")
        else:
            run.interrupt(reason)
        word = "failed, as its last cell did" if earlier.last_error is not None else "interrupted"
        self._tell(f"WatcherML: run {run.run_id} was not finished. It ends as {word}: {reason}.")
