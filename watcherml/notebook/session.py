"""``Session``: what one IPython shell has on record and open, and the hooks around each cell."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from watcherml.api import data, record
from watcherml.api.record import Run
from watcherml.api.recover import Campaign
from watcherml.errors import NotFound
from watcherml.forensics.capture import OOM_CLASSES
from watcherml.notebook import failures
from watcherml.notebook.active import ActiveRuns
from watcherml.notebook.cells import CellHistory, Ending, cell_identity
from watcherml.notebook.panels.base import notice, show
from watcherml.recorder import ids
from watcherml.store.storage import Storage

_ATTRIBUTE = "_watcherml_session"


class Session:
    """The state of the extension in one shell. Its hooks never raise and never keep an exception.

    ``keep_frames`` leaves the frames of a failed cell as they are, for ``%debug``.
    """

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.session_id = ids.new_id("session", time.time())
        self.keep_frames = False
        self.frames_kept = False  # the last out-of-memory cell still holds its memory
        self.cells = CellHistory(self.session_id)
        self.runs = ActiveRuns(lambda text: show(notice(text, "warn")))
        self.problems: list[str] = []
        self._last_storage: Storage | None = None
        self._last_oom: tuple[str, Storage] | None = None
        self._campaign: tuple[str, Storage] | None = None
        self._store_refused = False
        self._unlisten: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, shell: Any) -> Session | None:
        """Return the session of a shell, None if the extension is not loaded there."""
        found = getattr(shell, _ATTRIBUTE, None)
        return found if isinstance(found, cls) else None

    def attach(self) -> None:
        """Make this the shell's session, and the one that hears of runs and that capsules take their cells from."""
        setattr(self.shell, _ATTRIBUTE, self)
        self._unlisten = record.on_start(self.run_started)
        record.set_history(self.cells.evidence)

    def detach(self) -> None:
        """Take back what ``attach`` did; open runs stay open."""
        if hasattr(self.shell, _ATTRIBUTE):
            delattr(self.shell, _ATTRIBUTE)
        self._unlisten()
        record.set_history(None)

    # -- hooks ------------------------------------------------------------------------------------------------

    def pre_run_cell(self, info: Any) -> None:
        """Note the cell that is about to be executed."""
        try:
            if self.cells.current is None:
                self.runs.begin_cell()
            self.cells.begin(str(getattr(info, "raw_cell", "") or ""), cell_identity(info, self.shell))
        except Exception as problem:  # noqa: BLE001 - a hook must never stand between a person and the cell
            self._note(problem)

    def post_run_cell(self, result: Any) -> None:
        """Record how the cell ended, keep the evidence if it failed, and give its memory back."""
        # IPython 7 calls with None where its own code, a debugger for example, was left by an exception.
        early, error = getattr(result, "error_before_exec", None), getattr(result, "error_in_exec", None)
        try:
            self._finish_cell(error if early is None else early, result, before_execution=early is not None)
        except Exception as problem:  # noqa: BLE001 - see above
            self._note(problem)
        finally:
            early = error = None  # this frame must not keep what the person wants to be rid of

    def run_started(self, run: Run) -> None:
        """Take in a run that ``init`` has just started."""
        try:
            self._last_storage, self._store_refused = run.storage, False
            self.runs.started(run, self.cells.current)
        except Exception as problem:  # noqa: BLE001 - see above
            self._note(problem)

    def _finish_cell(self, error: BaseException | None, result: Any, *, before_execution: bool) -> None:
        ending = Ending.of(error)
        seq = self.cells.current
        run = self.runs.of_cell(seq)
        self.cells.end(ending, getattr(result, "execution_count", None), None if run is None else run.run_id)
        try:
            failures.handle(self, error, before_execution=before_execution)
        finally:
            if self.cells.current is None:
                self.runs.end_cell(seq, ending.error_type if ending.status == "error" else None)
            self._write_cells()

    def _write_cells(self) -> None:
        storage = self.storage()
        # Loading the extension must not make a store; and one that cannot be written is asked once a run.
        if self._store_refused or (self.runs.newest() is None and not storage.exists):
            return
        try:
            self.cells.write(storage)
        except Exception:
            self._store_refused = True
            raise

    def _note(self, problem: Exception) -> None:
        self.problems.append(f"{type(problem).__name__}: {problem}"[:2_000])
        if len(self.problems) == 1:
            text = f"WatcherML could not follow this cell: {self.problems[0]} `%watcher status` counts such problems."
            with contextlib.suppress(Exception):
                show(notice(text, "warn"))

    # -- what magics ask --------------------------------------------------------------------------------------

    def storage(self) -> Storage:
        """Return the store in use: that of the open run, else of the last one, else the folder rule's."""
        active = self.runs.newest()
        if active is not None:
            return active.storage
        return self._last_storage if self._last_storage is not None else Storage()

    def note_oom(self, run_id: str, storage: Storage) -> None:
        """Remember which run a recovery starts from unless another one is named."""
        self._last_oom = (run_id, storage)

    def source_run(self, wanted: str | None) -> tuple[str, Storage]:
        """Return the run to recover and its store: the named one, else the last that ran out of memory.

        Raises ``NotFound`` if there is none.
        """
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
            remedy="Open a run with watcherml.init(config=...) before the cell that fails, or give --run RUN_ID.",
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
