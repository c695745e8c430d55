"""What follows a failure: the capsule, the release of its memory, the panel under its traceback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from watcherml.api import data
from watcherml.api.record import Run
from watcherml.errors import StoreError
from watcherml.forensics.capsule import Capsule
from watcherml.forensics.capture import OOM_CLASSES
from watcherml.forensics.classify import Classification, classify_exception
from watcherml.forensics.matching import ask
from watcherml.forensics.release import Release, release_frames
from watcherml.notebook.panels.base import notice
from watcherml.notebook.panels.failure import failure_page
from watcherml.notebook.pending import Pending, remember

if TYPE_CHECKING:
    from watcherml.notebook.session import Session

_HOW_TO_RECORD = (
    "No run was open, so this is not on record. `%watcher capture --config NAME` puts it there, where NAME is the"
    " variable that holds your configuration; it can be recovered then. Next time, put"
    " `run = watcherml.init(config={...})` before the cell, or `%%watcher run` on its first line."
)


def handle(session: Session, error: BaseException | None, *, before_execution: bool) -> None:
    """Deal with the exception that left a cell, or with None if the cell went well.

    Order matters: evidence first, because releasing empties the frames it is read from; the panel last.
    """
    failed = session.runs.take_failed()
    if error is None or is_no_failure(error):
        if failed is not None:
            _report_handled(session, failed)
        return
    if before_execution and failed is None:
        return  # nothing was executed, so nothing of the run failed
    run = failed or session.runs.newest()
    found = classify_exception(error)
    if run is None:
        _without_run(session, error, found)
        return
    if failed is None and found.failure_class in OOM_CLASSES:
        run.fail(error)
        session.runs.told(run)
    elif failed is None:
        run.record_failure(error)
    released, words = release(session, error) if is_about_memory(found) else (None, "")
    _show(session, run, released, words, folded=_is_plain(found))


def of_thread(session: Session, error: BaseException) -> Callable[[], None] | None:
    """Keep the evidence of an exception that ended a thread; return what is done once its traceback is printed.

    A run that the thread has opened fails with it. To any other open run it is an event: training may go on elsewhere.
    """
    if is_no_failure(error):
        return None
    own = session.runs.of_thread()
    run = own or session.runs.newest()
    found = classify_exception(error)
    pending = None
    if run is None:
        pending = remember(session, error)
    elif own is None:
        run.record_failure(error)
    elif own.status == "running":
        own.fail(error)
    memory = is_about_memory(found)

    def finish() -> None:
        # With the frames kept there is nothing to keep for: %debug does not see what ended a thread.
        released = session.released = release_frames(error, session.shell) if memory else None
        if run is not None:
            _show(session, run, released, "", folded=_is_plain(found))
        elif memory and pending is not None:
            _tell_of(session, pending.capsule, released.sentence if released else "")

    return finish


def is_no_failure(error: BaseException) -> bool:
    """Tell whether an exception is a person's interruption, a regular exit, or a misused magic."""
    # IPython's own errors are misused magics; a person's interruption is no failure of the training.
    if isinstance(error, (KeyboardInterrupt, asyncio.CancelledError, SystemExit, GeneratorExit)):
        return True
    return str(ask(type(error), "__module__")).partition(".")[0] == "IPython"  # a person's class may say anything there


def is_about_memory(found: Classification) -> bool:
    """Tell whether memory ran out, of whatever kind: then what the cell holds is what the person needs back."""
    return found.failure_class in OOM_CLASSES or found.subkind.endswith("_oom")


def release(session: Session, error: BaseException) -> tuple[Release | None, str]:
    """Give the failed cell's memory back, or return the reason why it is kept."""
    session.released = None
    session.frames_kept = session.keep_frames or bool(getattr(session.shell, "call_pdb", False))
    if session.keep_frames:
        return None, "The frames of this cell are kept, and its memory with them; `%watcher free` gives it back."
    if session.frames_kept:
        return None, "%pdb is on, so the frames of this cell are kept; `%watcher free` gives its memory back."
    session.released = release_frames(error, session.shell)
    return session.released, ""


def _without_run(session: Session, error: BaseException, found: Classification) -> None:
    memory = is_about_memory(found)
    capsule = None
    try:
        capsule = remember(session, error).capsule
    finally:  # what cannot be captured is given back all the same
        if memory:
            released, words = release(session, error)
            _tell_of(session, capsule, released.sentence if released else words)


def _tell_of(session: Session, capsule: Capsule | None, words: str) -> None:
    first = f"WatcherML: {capsule.headline}" if capsule else "WatcherML: memory ran out."
    session.show(notice(f"{first}\n{words}\n{_HOW_TO_RECORD}", "warn", "wml-unrecorded"))


def _is_plain(found: Classification) -> bool:
    """Tell whether a failure is one line until it is opened: a typo needs no more."""
    return found.failure_class == "unclassified" and not is_about_memory(found)


def _capsule_of(run: Run) -> tuple[Capsule | None, bool]:
    """Return the capsule of a run's last failure, and whether the store has it; one that it refused is kept here."""
    refused = run.storage.runs.kept.of(run.run_id).capsules
    if refused:
        return Capsule.from_json(refused[-1]["document"]), False
    try:
        return data.capsule(run.storage, run.run_id), True
    except StoreError:
        return None, False


def _state(run: Run, stored: bool) -> str:
    goes_on = run.status == "running"
    if stored and goes_on:
        return f"This failure is on record. Run {run.run_id} goes on; end it with run.finish()."
    if stored:
        return f"Run {run.run_id} has ended as {run.status}, and this failure is on record."
    reason = run.problems[0] if run.problems else "for a reason that is not known"
    if goes_on:
        later = "is kept here until it does. The run goes on; end it with run.finish()."
        return f"The store does not take this failure of run {run.run_id} now ({reason}); it {later}"
    return (
        f"Run {run.run_id} has ended as {run.status}, and nothing of that could be written ({reason})."
        " Its evidence is kept here: `%watcher capture` puts it on record as another run, once a store can be written."
    )


def _show(session: Session, run: Run, release: Release | None, kept: str, *, folded: bool) -> None:
    capsule, stored = _capsule_of(run)
    if capsule is None:
        reason = f" ({run.problems[-1]})" if run.problems else ""
        text = f"WatcherML could not capture this failure of run {run.run_id}{reason}."
        session.show(notice(f"{text}\n{release.sentence if release else kept}", "warn"))
        return
    session.note_failure(run.run_id, run.storage, oom=capsule.failure.class_ in OOM_CLASSES)
    if not stored and run.status != "running":
        session.recorded, session.pending = None, Pending(capsule, session.cells.count, run.project, run.config)
    state = _state(run, stored)
    given_back = release.to_data() if release else {"sentence": kept, "kept": []} if kept else None
    session.show(failure_page(capsule, state, given_back, folded=folded, on_record=stored))


def _report_handled(session: Session, run: Run) -> None:
    """A run failed inside a ``with``, and the cell's own code dealt with the exception."""
    capsule, stored = _capsule_of(run)
    if capsule is None or not stored:
        return
    session.note_failure(run.run_id, run.storage, oom=capsule.failure.class_ in OOM_CLASSES)
    session.show(failure_page(capsule, f"run {run.run_id} failed in this cell and is on record.", folded=True))
