"""What follows a cell that failed: the capsule, the release of its memory, the panel under its traceback."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from watcherml.api import data
from watcherml.api.record import Run
from watcherml.forensics.capture import OOM_CLASSES
from watcherml.forensics.classify import classify_exception
from watcherml.forensics.release import Release, release_frames
from watcherml.notebook.panels.base import notice, show
from watcherml.notebook.panels.failure import failure_page

if TYPE_CHECKING:
    from watcherml.notebook.session import Session

_HOW_TO_RECORD = (
    "WatcherML: this cell ran out of memory, and no run was open, so nothing is on record."
    " Put `run = watcherml.init(config={...})` before it and run it again; the failure can then be recovered."
)


def handle(session: Session, error: BaseException | None, *, before_execution: bool) -> None:
    """Deal with the exception that left a cell, or with None if the cell went well.

    Order matters: evidence first, because releasing empties the frames it is read from; the panel last.
    """
    failed = session.runs.take_failed()
    if error is None or _is_no_failure(error):
        if failed is not None:
            _report_handled(session, failed)
        return
    found = classify_exception(error).failure_class
    oom = found in OOM_CLASSES
    run = failed or session.runs.newest()
    if run is None:
        if oom:
            release, words = _release(session, error)
            show(notice(f"{_HOW_TO_RECORD}\n{release.sentence if release else words}", "warn", "wml-unrecorded"))
        return
    if before_execution and failed is None:
        return  # nothing was executed, so nothing of the run failed
    if failed is None and oom:
        run.fail(error)
    elif failed is None:
        run.record_failure(error)
    release, words = _release(session, error) if oom else (None, "")
    if oom:
        session.note_oom(run.run_id, run.storage)
    _show(run, release, words, folded=found == "unclassified")


def _is_no_failure(error: BaseException) -> bool:
    # IPython's own errors are misused magics; a person's interruption is no failure of the training.
    if isinstance(error, (KeyboardInterrupt, asyncio.CancelledError, SystemExit, GeneratorExit)):
        return True
    return type(error).__module__.partition(".")[0] == "IPython"


def _release(session: Session, error: BaseException) -> tuple[Release | None, str]:
    """Give the failed cell's memory back, or return the reason why it is kept."""
    session.frames_kept = session.keep_frames or bool(getattr(session.shell, "call_pdb", False))
    if session.keep_frames:
        return None, "The frames of this cell are kept, and its memory with them; `%watcher free` gives it back."
    if session.frames_kept:
        return None, "%pdb is on, so the frames of this cell are kept; `%watcher free` gives its memory back."
    return release_frames(error, session.shell), ""


def _show(run: Run, release: Release | None, kept: str, *, folded: bool) -> None:
    if run.status == "running":
        state = f"This failure is on record. Run {run.run_id} goes on; end it with run.finish()."
    else:
        state = f"Run {run.run_id} has ended as {run.status}, and this failure is on record."
    capsule = data.capsule(run.storage, run.run_id)
    if capsule is None:
        reason = f" ({run.problems[-1]})" if run.problems else ""
        show(notice(f"WatcherML could not capture this failure of run {run.run_id}{reason}.", "warn"))
        return
    given_back = release.to_data() if release else {"sentence": kept, "kept": []} if kept else None
    show(failure_page(capsule, state, given_back, folded=folded))


def _report_handled(session: Session, run: Run) -> None:
    """A run failed inside a ``with``, and the cell's own code dealt with the exception."""
    capsule = data.capsule(run.storage, run.run_id)
    if capsule is None:
        return
    if capsule.failure.class_ in OOM_CLASSES:
        session.note_oom(run.run_id, run.storage)
    show(failure_page(capsule, f"run {run.run_id} failed in this cell and is on record.", folded=True))
