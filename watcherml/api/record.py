"""Recording: ``init`` and ``Run`` with forensics bound to the recorder's failure port."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from watcherml.recorder import run as recorder
from watcherml.recorder.life import last_error
from watcherml.sealed.shown import Shown
from watcherml.store.storage import Storage

if TYPE_CHECKING:
    from watcherml.forensics.capsule import Capsule
    from watcherml.forensics.capture import History

# What a notebook extension wants to know of runs; empty in scripts.
_started: list[Callable[[Run], None]] = []
_default_project: list[str] = []
_history: list[History] = []


class Run(Shown, recorder.Run):
    """A recorded run whose failure becomes a capsule in the store. See ``watcherml.recorder.run.Run``."""

    def __init__(
        self,
        project: str | None = None,
        config: Any = None,
        storage: Storage | str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        if project is None and _default_project:
            project = _default_project[-1]
        options.setdefault("on_failure", save_capsule)
        super().__init__(project, config, storage, **options)

    # The identity of the exception that Python remembered when the run started: what failed before it is not its own.
    error_before = id(None)

    def start(self) -> Run:
        """Put the run on record and start sampling; raises ``RunError`` if it was started before."""
        super().start()
        self.error_before = id(last_error())
        for listener in list(_started):
            self._safely(partial(listener, self))
        return self


def init(
    project: str | None = None,
    config: Any = None,
    storage: Storage | str | os.PathLike[str] | None = None,
) -> Run:
    """Start a recorded run and return it; use it as a context manager or call ``finish``.

    ``project`` defaults to ``%watcher project``, else the working directory's name. ``config`` may be any mapping,
    dataclass or Namespace. ``storage`` is a Storage or a folder; without it WATCHERML_DIR counts, then
    ``./.watcherml``.
    """
    return Run(project, config, storage).start()


def open_runs() -> list[Run]:
    """Return the person's runs that this process has started and not ended, oldest first."""
    return [run for run in recorder.open_here() if isinstance(run, Run) and run.role == "user"]


def save_capsule(run: recorder.Run, error: BaseException) -> None:
    """Capture the evidence of a failure and store it with the run.

    What only echoes another rank's failure is noted with it, and takes the place of no cause.
    """
    from watcherml.forensics import peers  # most runs start and end without a failure
    from watcherml.forensics.capture import capture

    capsule = capture(run, error, _history[-1] if _history else None)
    if peers.has_cause_on_record(run, capsule):
        peers.note_echo(run, capsule)
    else:
        add_capsule(run, capsule)


def add_capsule(run: recorder.Run, capsule: Capsule) -> None:
    """Store a capsule with its run, together with what the store knows of similar runs."""
    from watcherml.forensics.earlier import with_neighbours

    capsule = with_neighbours(capsule, run.storage)
    run.storage.evidence.add_capsule(
        run.run_id,
        digest=capsule.digest,
        failure_class=capsule.failure.class_,
        subkind=capsule.failure.subkind,
        sentence=capsule.headline,
        document=capsule.to_json(),
        at=capsule.created_at,
    )
    if capsule.device.kind != "none":
        run.storage.runs.note(run.run_id, {}, capsule.device.to_data())


def on_start(listener: Callable[[Run], None]) -> Callable[[], None]:
    """Call ``listener(run)`` for each run that starts in this process; returns the call that undoes it."""
    _started.append(listener)
    return lambda: _started.remove(listener) if listener in _started else None


def set_default_project(name: str | None) -> None:
    """Set the project of runs that name none; None takes it back."""
    _default_project[:] = [] if name is None else [name]


def default_project() -> str | None:
    """Return the project of runs that name none, if one was set."""
    return _default_project[-1] if _default_project else None


def set_history(history: History | None) -> None:
    """Set where a capsule gets the executed notebook cells from; None takes it back."""
    _history[:] = [] if history is None else [history]
