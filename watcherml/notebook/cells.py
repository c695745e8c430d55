"""Every executed cell as strings and numbers: kept here, written to the store once there is one.

No exception, traceback or frame is kept, and secrets are taken out before anything is.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

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
    """One executed cell. ``seconds`` is its duration, ``started_at`` seconds since 1970."""

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
        return cls("interrupted" if interrupted else "error", type(error).__name__[:200], message)


class CellHistory:
    """The cells of one session, in the order in which they were started."""

    def __init__(self, session_id: str, clock: Callable[[], float] = time.time) -> None:
        self.session_id = session_id
        self.count = 0
        self._clock = clock
        self._done: list[Cell] = []
        self._unwritten: list[Cell] = []
        self._open: list[tuple[Cell, float, bool]] = []  # cell, start on the monotonic clock, counts as a cell

    @property
    def current(self) -> int | None:
        """The number of the outermost cell that is being executed, None between cells."""
        return self._open[0][0].seq if self._open else None

    def begin(self, source: str, cell_id: str | None) -> None:
        """Note that a cell is about to be executed."""
        cleaned = _storable(redact_text(source[:MAX_SOURCE]))
        # A cell magic may run its body as a cell; that body stands in the outer cell already.
        repeated = bool(self._open) and cleaned.strip() in self._open[-1][0].source
        if not repeated:
            self.count += 1
        cell = Cell(self.session_id, self.count, cleaned, self._clock(), cell_id=cell_id)
        self._open.append((cell, time.monotonic(), not repeated))

    def end(self, ending: Ending, execution_count: int | None, run_id: str | None) -> None:
        """Close the innermost open cell."""
        if not self._open:
            return  # the extension was loaded inside this very cell
        cell, started, counts = self._open.pop()
        if not counts and ending.status != "ok":
            self._open[-1][0].error_type = ending.error_type
            self._open[-1][0].error_message = ending.error_message
            return
        if ending.status == "ok" and cell.error_type is not None:
            cell.status = "error"  # what it ran as a cell of its own failed
        else:
            cell.status, cell.error_type, cell.error_message = ending.status, ending.error_type, ending.error_message
        cell.seconds = round(time.monotonic() - started, 6)
        cell.execution_count, cell.run_id = execution_count, run_id
        if cell.cell_id is None:
            cell.cell_id = fallback_id(execution_count, cell.source)
        if counts:
            self._done = [*self._done, cell][-MAX_CELLS:]
            self._unwritten = [*self._unwritten, cell][-MAX_CELLS:]

    def write(self, storage: Storage) -> None:
        """Put the cells that are not on record yet into a store; raises what the store raises."""
        while self._unwritten:
            storage.evidence.add_cell(asdict(self._unwritten[0]))
            self._unwritten.pop(0)

    def sources(self) -> list[tuple[int | None, str]]:
        """Return the execution count and source of the finished cells, oldest first."""
        return [(cell.execution_count, cell.source) for cell in self._done]

    def evidence(self) -> list[dict[str, Any]] | None:
        """Return the last cells for a capsule, the one that is being executed included; None if there is none."""
        cells = sorted([*self._done, *(cell for cell, _, counts in self._open if counts)], key=lambda cell: cell.seq)
        kept: list[dict[str, Any]] = []
        room = CAPSULE_CHARACTERS
        for cell in reversed(cells[-CAPSULE_CELLS:]):
            room -= len(cell.source)
            if room < 0:
                break
            data = asdict(cell)
            del data["session_id"], data["run_id"]
            kept.append(data)
        return kept[::-1] or None


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
