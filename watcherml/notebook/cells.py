"""Every executed cell as strings and numbers: kept here, written to the store once there is one.

No exception, traceback or frame is kept. Secrets are taken out before a cell leaves this module; not before it runs,
since patterns over a long cell take longer than a person may be made to wait.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from watcherml.notebook.bindings import Ran
from watcherml.recorder.life import name_of
from watcherml.recorder.redact import redact_text
from watcherml.store.storage import Storage

Status = Literal["running", "ok", "error", "interrupted"]

MAX_CELLS = 2_000  # kept in memory
MAX_SOURCE = 200_000  # characters of one cell
CAPSULE_CELLS = 200  # cells in one capsule
CAPSULE_CHARACTERS = 500_000  # of source in one capsule
_MAX_MESSAGE = 2_000


@dataclass
class Cell:
    """One executed cell. ``seconds`` is its duration, so far if it is running; ``started_at`` seconds since 1970.

    Until it is ``clean``, ``source`` is as it was typed.
    """

    session_id: str
    seq: int
    source: str
    started_at: float
    run_id: str | None = None
    execution_count: int | None = None
    cell_id: str | None = None
    status: Status = "running"
    error_type: str | None = None
    error_message: str | None = None
    seconds: float = 0.0
    clean: bool = False
    until: int | None = None  # the line at which it failed; None if it ran to its end, 0 if that is not known


@dataclass(frozen=True)
class Ending:
    """How a cell ended, in strings."""

    status: Status
    error_type: str | None = None
    error_message: str | None = None

    @classmethod
    def of(cls, error: BaseException | None) -> Ending:
        """Return the ending for the exception that left the cell; Ctrl-C is an interruption, ``exit()`` is none."""
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            return cls("ok")
        try:
            words = str(error)
        except BaseException:  # noqa: BLE001 - the person's own __str__ may do anything
            words = ""
        message = _storable(redact_text(words[: 10 * _MAX_MESSAGE])[:_MAX_MESSAGE])
        interrupted = isinstance(error, (KeyboardInterrupt, asyncio.CancelledError))
        return cls("interrupted" if interrupted else "error", name_of(type(error))[:200], message)


class CellHistory:
    """The cells of one session, in the order in which they were started. One thread adds, any thread may read."""

    def __init__(self, session_id: str, clock: Callable[[], float] = time.time) -> None:
        self.session_id = session_id
        self.count = 0
        self._clock = clock
        self._done: deque[Cell] = deque(maxlen=MAX_CELLS)
        self._unwritten: deque[Cell] = deque(maxlen=MAX_CELLS)
        self._before: list[Ran] = []  # executed before this session; never recorded
        self._open: list[tuple[Cell, float, bool]] = []  # cell, start on the monotonic clock, counts as a cell
        self._cleaning, self._writing = threading.Lock(), threading.Lock()

    @property
    def depth(self) -> int:
        """How many cells are being executed: more than one where a magic runs its body as a cell."""
        return len(self._open)

    @property
    def current(self) -> int | None:
        """The number of the outermost cell that is being executed, None between cells."""
        return self._open[0][0].seq if self._open else None

    def came_before(self, inputs: Sequence[str]) -> None:
        """Take in the cells that the shell executed before this session, by execution count from 0.

        Names can be copied from them; they are not on record, since nobody saw how they ended.
        """
        numbered = list(enumerate(inputs))[-MAX_CELLS:]
        self._before = [Ran(count, source[:MAX_SOURCE]) for count, source in numbered if source.strip()]

    def begin(self, source: str, cell_id: str | None) -> None:
        """Note that a cell is about to be executed."""
        kept = source[:MAX_SOURCE]
        # A cell magic may run its body as a cell; that body stands in the outer cell already.
        repeated = bool(self._open) and self._stands_in(self._open[-1][0], kept)
        if not repeated:
            self.count += 1
        cell = Cell(self.session_id, self.count, kept, self._clock(), cell_id=cell_id)
        self._open.append((cell, time.monotonic(), not repeated))

    def end(self, ending: Ending, execution_count: int | None, run_id: str | None, until: int | None = None) -> None:
        """Close the innermost open cell; ``until`` is the line at which it failed, 0 if that is not known."""
        if not self._open:
            return  # the extension was loaded inside this very cell
        cell, started, counts = self._open.pop()
        if not counts and ending.status != "ok":
            self._open[-1][0].error_type = ending.error_type
            self._open[-1][0].error_message = ending.error_message
            self._open[-1][0].until = 0
            return
        if ending.status == "ok" and cell.error_type is not None:
            cell.status = "error"  # what it ran as a cell of its own failed
        else:
            cell.until = until
            cell.status, cell.error_type, cell.error_message = ending.status, ending.error_type, ending.error_message
        cell.seconds = round(time.monotonic() - started, 6)
        cell.execution_count, cell.run_id = execution_count, run_id
        if counts:
            self._done.append(cell)
            self._unwritten.append(cell)

    def drop(self, depth: int) -> None:
        """Forget the cells that are open beyond a depth: the hook that should have ended them did not get there."""
        del self._open[max(0, depth) :]

    def write(self, storage: Storage, most: int = MAX_CELLS) -> None:
        """Put the cells that are not on record yet into a store, at most ``most``; raises what the store raises."""
        with self._writing:
            while self._unwritten and most > 0:
                cell, most = self._unwritten[0], most - 1
                storage.evidence.add_cell(self._row(cell))
                # A full queue may have pushed it out meanwhile.
                if self._unwritten and self._unwritten[0] is cell:
                    self._unwritten.popleft()

    def clean(self) -> None:
        """Take the secrets out of the cells that have ended."""
        for cell in reversed(list(self._done)):
            if cell.clean:
                return
            self._clean(cell)

    def sources(self) -> list[Ran]:
        """Return the finished cells as far as they were executed, oldest first, those before the session included."""
        self.clean()
        before = [one._replace(source=_storable(redact_text(one.source))) for one in self._before]
        return before + [Ran(cell.execution_count, cell.source, cell.until) for cell in list(self._done)]

    def evidence(self, until: int | None = None) -> list[dict[str, Any]] | None:
        """Return the last cells for a capsule, the one that is being executed included; None if there is none.

        ``until`` is the number of the last cell that counts.
        """
        running = [(cell, started) for cell, started, counts in list(self._open) if counts]
        for cell, started in running:
            cell.seconds = round(time.monotonic() - started, 6)
        cells = sorted([*self._done, *(cell for cell, _ in running)], key=lambda cell: cell.seq)
        cells = [cell for cell in cells if until is None or cell.seq <= until]
        kept: list[dict[str, Any]] = []
        room = CAPSULE_CHARACTERS
        for cell in reversed(cells[-CAPSULE_CELLS:]):
            data = self._row(cell)
            room -= len(data["source"])
            if room < 0:
                break
            del data["session_id"], data["run_id"]
            kept.append(data)
        return kept[::-1] or None

    def _row(self, cell: Cell) -> dict[str, Any]:
        self._clean(cell)
        data = dict(vars(cell))
        del data["clean"], data["until"]
        return data

    def _clean(self, cell: Cell) -> None:
        with self._cleaning:
            if not cell.clean:
                cell.source = _storable(redact_text(cell.source))
            cell.clean = True
            # Of a cell that still runs the execution count is not known yet.
            if cell.cell_id is None and cell.status != "running":
                cell.cell_id = fallback_id(cell.execution_count, cell.source)

    def _stands_in(self, outer: Cell, inner: str) -> bool:
        with self._cleaning:
            wanted = _storable(redact_text(inner)) if outer.clean else inner
        return wanted.strip() in outer.source


def cell_identity(info: Any, shell: Any) -> str | None:
    """Return what a front end calls a cell: the notebook format's id, or what VS Code and Colab send instead."""
    found = getattr(info, "cell_id", None)
    if isinstance(found, str) and found:
        return found[:200]
    parent = getattr(shell, "get_parent", None)
    header = parent() if callable(parent) else None
    metadata = header.get("metadata") if isinstance(header, dict) else None
    if not isinstance(metadata, dict):
        return None
    colab = metadata.get("colab")
    for value in (metadata.get("cellId"), colab.get("cell_id") if isinstance(colab, dict) else None):
        if isinstance(value, str) and value:
            return value[:200]
    return None


def _storable(text: str) -> str:
    """Return text without lone surrogates, which neither SQLite nor a sealed document takes."""
    return text.encode("utf-8", "backslashreplace").decode()


def fallback_id(execution_count: int | None, source: str) -> str:
    """Return a name for a cell whose front end gives none: its execution count and a short hash of its source."""
    return f"in-{execution_count or 0}-{hashlib.sha256(source.encode()).hexdigest()[:12]}"
