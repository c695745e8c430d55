"""``Session``: what one IPython shell has on record and open, and the hooks around each cell."""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from watcherml.api import data, record
from watcherml.api.record import Run
from watcherml.api.recover import Campaign
from watcherml.errors import NotFound
from watcherml.forensics.capture import OOM_CLASSES
from watcherml.forensics.release import Release
from watcherml.notebook import failures, run_cell
from watcherml.notebook.active import ActiveRuns
from watcherml.notebook.behind import Behind
from watcherml.notebook.cells import MAX_CELLS, CellHistory, Ending, cell_identity
from watcherml.notebook.panels.base import Panel, notice, show
from watcherml.notebook.pending import Pending
from watcherml.notebook.threads import ThreadWatch
from watcherml.recorder import ids
from watcherml.recorder.life import last_error
from watcherml.store.storage import Storage

_ATTRIBUTE = "_watcherml_session"
_CELL_RUNS = "_watcherml_cell_runs"
# What a session that is unloaded leaves to one of the same cell, or where its last failure is the last one still.
_LEFT = "_watcherml_left"
_OF_FAILURE = ("pending", "recorded")
_OF_SESSION = (
    "keep_frames",
    "frames_kept",
    "released",
    "_last_storage",
    "_last_oom",
    "_campaign",
    "bare",
    *_OF_FAILURE,
)
_FLUSH_SECONDS = 5.0
# A store that refuses cells, because it is locked or full, is asked again by the first cell after so long.
_REFUSED_SECONDS = 10.0


class Session:
    """The state of the extension in one shell. Its hooks never raise and never keep an exception.

    ``keep_frames`` leaves the frames of a failed cell as they are, for ``%debug``.
    """

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.session_id = ids.new_id("session", time.time())
        self.keep_frames = False
        self.frames_kept = False  # the last out-of-memory cell still holds its memory
        self.released: Release | None = None  # what the last release gave back
        self.pending: Pending | None = None  # the last failure, if no run was open to record it
        self.recorded: tuple[str, Storage] | None = None  # the run of the last failure, if it is on record
        self.bare: Pending | None = None  # what %watcher capture put there without a configuration
        self.cells = CellHistory(self.session_id)
        self.runs = ActiveRuns(lambda text: self.show(notice(text, "warn")))
        self.cell_runs: list[run_cell.CellRun] = []  # of %%watcher run, outermost first
        self.completion: Any = None  # of the extension: what completes after %watcher
        self.told_of = 0  # the identity of an exception that was dealt with inside this cell
        self.problems: list[str] = []
        self._last_storage: Storage | None = None
        self._last_oom: tuple[str, Storage] | None = None
        self._campaign: tuple[str, Storage] | None = None
        self._asked: Path | None = None  # the store that cells were last written to, or should have been
        self._refused_until = 0.0  # of the monotonic clock
        self._refusal_told = False
        self._seen_error = 0
        self._ended_with = 0  # the identity of the error that was remembered when the last cell had ended
        self._to_show: list[Panel] = []
        self._behind = Behind(self._note)
        self._threads = ThreadWatch(partial(failures.of_thread, self), self._note)
        self._unlisten: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, shell: Any) -> Session | None:
        """Return the session of a shell, None if the extension is not loaded there."""
        found = getattr(shell, _ATTRIBUTE, None)
        return found if isinstance(found, cls) else None

    def attach(self) -> None:
        """Make this the shell's session, and the one that hears of runs and that capsules take their cells from."""
        setattr(self.shell, _ATTRIBUTE, self)
        count, left = self.shell.__dict__.pop(_CELL_RUNS, (None, []))
        if count == self._shell_count():  # reloaded by the cell whose run it is
            self.cell_runs = left
        # Of a cell before this one, which may ask for it to be captured.
        self._seen_error = self._ended_with = id(last_error())
        self._take_over(*self.shell.__dict__.pop(_LEFT, (None, None, {})))
        self._unlisten = record.on_start(self.run_started)
        for run in record.open_runs():  # of a cell before this one, or of a session that was unloaded
            self.runs.adopt(run)
            self._last_storage = run.storage
        # The last one is the cell that loads the extension, which is begun as a cell of this session.
        self.cells.came_before(getattr(getattr(self.shell, "history_manager", None), "input_hist_raw", ())[:-1])
        record.set_history(self.cells.evidence)
        self._threads.install()
        atexit.register(self._last_flush)

    def detach(self) -> None:
        """Take back what ``attach`` did; open runs stay open."""
        if hasattr(self.shell, _ATTRIBUTE):
            delattr(self.shell, _ATTRIBUTE)
        if self.cell_runs:
            setattr(self.shell, _CELL_RUNS, (self._shell_count(), self.cell_runs))
        left = {name: getattr(self, name) for name in _OF_SESSION}
        setattr(self.shell, _LEFT, (id(last_error()), self._shell_count(), left))
        self._unlisten()
        record.set_history(None)
        self._threads.remove()
        atexit.unregister(self._last_flush)
        self._last_flush()
        self._behind.end()

    def _shell_count(self) -> int | None:
        return getattr(self.shell, "execution_count", None)  # a shell without a prompt counts nothing

    def _take_over(self, error: int | None, count: int | None, left: dict[str, Any]) -> None:
        failed = error == self._seen_error and any(left.get(name) is not None for name in _OF_FAILURE)
        if failed or count == self._shell_count():  # else a later cell begins anew, in the store of its place
            for name, value in left.items():
                if failed or name not in _OF_FAILURE:
                    setattr(self, name, value)

    # -- hooks ------------------------------------------------------------------------------------------------

    def pre_run_cell(self, info: Any) -> None:
        """Note the cell that is about to be executed."""
        try:
            if self.cells.current is None:
                self.runs.begin_cell()
                self._seen_error = id(last_error())
            self.cells.begin(str(getattr(info, "raw_cell", "") or ""), cell_identity(info, self.shell))
        except Exception as problem:  # noqa: BLE001 - a hook must never stand between a person and the cell
            self._note(problem)

    def post_run_cell(self, result: Any) -> None:
        """Record how the cell ended, keep the evidence if it failed, and give its memory back."""
        depth = self.cells.depth
        # IPython 7 calls with None where its own code, a debugger for example, was left by an exception.
        early, error = getattr(result, "error_before_exec", None), getattr(result, "error_in_exec", None)
        if early is None and error is None:
            error = self._printed_error()
        try:
            self._finish_cell(error if early is None else early, result, before_execution=early is not None)
        except KeyboardInterrupt:  # of a person who does not want to wait for the evidence
            self.cells.drop(depth - 1)
            self._interrupted()
        except Exception as problem:  # noqa: BLE001 - see above
            self._note(problem)
        finally:
            early = error = None  # this frame must not keep what the person wants to be rid of
            self.cells.drop(depth - 1)  # a cell that never ends would keep every later panel from being shown
            self._seen_error = self._ended_with = id(last_error())

    def run_started(self, run: Run) -> None:
        """Take in a run that ``init`` has just started."""
        try:
            self._last_storage, self._refused_until = run.storage, 0.0
            self.runs.started(run, self.cells.current)
        except Exception as problem:  # noqa: BLE001 - see above
            self._note(problem)

    def _finish_cell(self, error: BaseException | None, result: Any, *, before_execution: bool) -> None:
        ending = Ending.of(error)
        seq = self.cells.current
        run = self.runs.of_cell(seq)
        until = 0 if before_execution else _failed_line(getattr(result, "error_in_exec", None), self.shell.user_ns)
        depth, told = self.cells.depth, error is not None and id(error) == self.told_of
        self.cells.end(ending, getattr(result, "execution_count", None), None if run is None else run.run_id, until)
        try:
            run_cell.end(self, depth, error)
            if not told:
                failures.handle(self, error, before_execution=before_execution)
        finally:
            error = None
            if self.cells.current is None:
                self.told_of = 0
                self.runs.end_cell(seq, ending.error_type if ending.status == "error" else None)
            self._write_cells()
            self._show_waiting()

    def _printed_error(self) -> BaseException | None:
        """Return the exception that this cell printed and did not raise, as ``%run`` and older ``%time`` do."""
        last = last_error()
        return last if last is not None and id(last) != self._seen_error else None

    def forget_older(self) -> None:
        """Let go of the last known failure if one has come since, of a widget's callback, which is no cell."""
        last = last_error()
        if last is not None and id(last) != self._ended_with and not failures.is_no_failure(last):
            self.recorded = self.pending = None

    def _write_cells(self) -> None:
        storage = self.storage()
        if self.runs.newest() is None and not storage.exists:  # loading the extension must not make a store
            self._behind.do(self.cells.clean)
            return
        if self._asked != storage.path:
            # A store that refuses has to be said below the cell that asked first; later cells need not wait for a disk.
            self._asked, self._refusal_told = storage.path, False
            self._write(storage, 1)
        self._behind.do(partial(self._write, storage))

    def _write(self, storage: Storage, most: int = MAX_CELLS) -> None:
        """Write the cells that wait; a store that refuses is left alone for a while, and that is said once."""
        if time.monotonic() < self._refused_until:
            self.cells.clean()
            return
        try:
            self.cells.write(storage, most)
        except Exception:
            self._refused_until = time.monotonic() + _REFUSED_SECONDS
            told, self._refusal_told = self._refusal_told, True
            if not told:
                raise
        else:
            self._refusal_told = False

    def _last_flush(self) -> None:
        """Ask once more a store that has refused: nobody will do so later."""
        self._refused_until = 0.0
        if self._asked is not None:
            self._behind.do(partial(self._write, self.storage()))
        self.flush()

    def flush(self) -> bool:
        """Wait until the cells that have ended are on record; return whether they are."""
        return self._behind.wait(_FLUSH_SECONDS)

    # -- what is shown ----------------------------------------------------------------------------------------

    def show(self, panel: Panel) -> None:
        """Show a panel below the cell; one that a magic runs as a cell of its own may have its output caught."""
        if self.cells.current is None or threading.current_thread() is not threading.main_thread():
            show(panel)
        else:
            self._to_show.append(panel)

    def _show_waiting(self) -> None:
        while self._to_show and self.cells.current is None:
            show(self._to_show.pop(0))

    def _interrupted(self) -> None:
        text = "Ctrl-C came while WatcherML recorded how this cell ended; what it had not written yet is not on record."
        with contextlib.suppress(Exception):
            self.show(notice(f"{text} `%watcher free` gives back what a failed cell still holds.", "warn"))
            self._show_waiting()

    def _note(self, problem: Exception) -> None:
        self.problems.append(f"{type(problem).__name__}: {problem}"[:2_000])
        if len(self.problems) == 1:
            text = f"WatcherML could not follow this cell: {self.problems[0]} `%watcher status` counts such problems."
            with contextlib.suppress(Exception):
                self.show(notice(text, "warn"))

    # -- what magics ask --------------------------------------------------------------------------------------

    def storage(self) -> Storage:
        """Return the store in use: that of the open run, else of the last one, else the folder rule's."""
        active = self.runs.newest()
        if active is not None:
            return active.storage
        return self._last_storage if self._last_storage is not None else Storage()

    def note_failure(self, run_id: str, storage: Storage, *, oom: bool) -> None:
        """Remember the run whose failure is on record, and from which a recovery starts if it ran out of memory."""
        self.pending, self.recorded = None, (run_id, storage)
        if oom:
            self._last_oom = (run_id, storage)

    def source_run(self, wanted: str | None) -> tuple[str, Storage]:
        """Return the run to recover and its store: the named one, else the last that ran out of memory.

        Raises ``NotFound`` if there is none, or if the last one is not on record.
        """
        if wanted is None and self.pending is not None and self.pending.oom:
            # An older failure is not what is meant, and a plan for it would look like one for this.
            raise NotFound("the last failure that ran out of memory is not on record",
                           remedy="`%watcher capture --config NAME` puts it there; an older one is named by"
                           " --run RUN_ID.")  # fmt: skip
        if wanted is None and self._last_oom is not None:
            return self._last_oom
        storage = self.storage()
        if wanted is not None:
            if self._last_oom is not None and self._last_oom[0] == wanted:
                storage = self._last_oom[1]
            data.run(storage, wanted)
            return wanted, storage
        for row in data.failures(storage, limit=1_000):
            if row["failure_class"] in OOM_CLASSES:
                return str(row["run_id"]), storage
        raise NotFound(
            f"no run in {storage.path} ran out of memory",
            remedy="Put `%%watcher run` on the first line of the cell that fails, or open a run before it with"
            " watcherml.init(config=...); an older one is named by --run RUN_ID."
            " A failure without a run is put on record by `%watcher capture --config NAME`.",
        )

    def note_campaign(self, campaign: Campaign) -> None:
        """Remember the campaign that ``%watcher recovery`` and ``%watcher stop`` mean without an id."""
        self._campaign = (campaign.campaign_id, campaign.storage)

    def campaign(self, wanted: str | None) -> Campaign:
        """Return a campaign: the named one, else this session's last, else the newest of the store.

        Raises ``NotFound`` if there is none.
        """
        if self._campaign is not None and wanted in (None, self._campaign[0]):
            return Campaign(*self._campaign)
        storage = self.storage()
        if wanted is None:
            rows = data.campaigns(storage, limit=1)
            if not rows:
                raise NotFound(f"no recovery campaign in {storage.path}", remedy="`%%watcher recover` prepares one.")
            wanted = str(rows[0]["campaign_id"])
        data.campaign(storage, wanted)
        return Campaign(wanted, storage)


def _failed_line(error: BaseException | None, names: Any) -> int | None:
    """Return the line of a cell at which it failed: None for one that did not, 0 where that is not known."""
    if error is None:
        return None
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals is not names:
        trace = trace.tb_next
    return 0 if trace is None else trace.tb_lineno
