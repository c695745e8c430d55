"""``%watcher capture``: a failure that no run recorded is put on record after the fact."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from watcherml.api import data, record
from watcherml.api.resolve import resolve
from watcherml.errors import NotFound, StoreError, UsageError, WatcherError
from watcherml.forensics.capsule import Capsule, Completeness
from watcherml.forensics.capture import OOM_CLASSES, capture
from watcherml.forensics.classify import classify_exception
from watcherml.forensics.evidence import present
from watcherml.forensics.release import Release, remembered
from watcherml.notebook import failures
from watcherml.notebook.command import is_a
from watcherml.notebook.panels.base import Panel
from watcherml.notebook.panels.failure import failure_page
from watcherml.notebook.pending import Pending, remember
from watcherml.options import Parser

if TYPE_CHECKING:
    from watcherml.notebook.session import Session
    from watcherml.store.storage import Storage

# What does not depend on the moment of the failure: configuration, git, packages, cells.
_OF_THE_RUN = ("EV-1", "EV-7", "EV-8", "EV-11")


def parser() -> Parser:
    """Return the flags of ``%watcher capture``."""
    made = Parser(prog="%watcher capture", add_help=False)
    declare(made)
    return made


def declare(parser: Parser) -> None:
    """Declare the flags of ``%watcher capture``."""
    parser.add_argument("--config", metavar="NAME", help="variable with the configuration that a recovery starts from")
    parser.add_argument("--project", metavar="NAME", help="project of the run (default: that of %%watcher project)")


def put_on_record(session: Session, values: Namespace) -> Panel | None:
    """Make a run of the last failure and return its panel, or give the failure to the run that was open when it came.

    Raises ``NotFound`` if nothing has failed, ``UsageError`` if ``--config`` names no configuration or comes too late,
    ``StoreError`` if the store cannot be written; the failure is kept then.
    """
    session.forget_older()
    config = configuration(session, values.config)
    if session.recorded is not None and (values.config is None or not _is_bare(session, session.recorded[0])):
        return _there_already(session, values.config)
    pending, first = session.pending, None
    if session.recorded is not None and session.bare is not None:
        pending, first = session.bare, session.recorded  # it lacks the configuration that is named now
    if pending is None and _of_open_run(session, values.config):
        return None  # it is shown below the cell, as it would have been
    known = values.config is not None
    if pending is not None:
        if pending.config is not None and not known:
            config, known = pending.config, True
        run = _record_pending(session, pending, values.project or pending.project, config)
        release = session.released if pending.oom else None
        capsule = data.capsule(run.storage, run.run_id)
    else:
        run, capsule, release = _record_remembered(session, values.project, config)
    if capsule is None:
        raise NotFound(f"run {run.run_id} has no capsule", remedy=(run.problems or ["`%watcher doctor` looks."])[-1])
    session.note_failure(run.run_id, run.storage, oom=capsule.failure.class_ in OOM_CLASSES)
    session.bare = (
        None if known else Pending(capsule, session.cells.count if pending is None else pending.cell, run.project)
    )
    state = f"This failure is on record now, as run {run.run_id}."
    if not known:
        state += " Its configuration is not: `%watcher capture --config NAME` records it with the one in a variable."
    if first is not None:
        state += _replaced(first, run.run_id)
    return failure_page(capsule, state, release.to_data() if release else None)


def configuration(session: Session, name: str | None) -> Any:
    """Return the configuration in a variable; ``UsageError`` if there is no such variable or none in it."""
    if name is None:
        return {}
    absent = object()
    value = session.shell.user_ns.get(name, absent)
    if value is absent:
        raise UsageError("--config", expected="the name of a variable of this notebook", got=repr(name)[:80])
    if is_a(value, (str, bytes, int, float, list, tuple, set)) or value is None:
        found = f"{name}, a {type(value).__name__}"
        raise UsageError("--config", expected="a dict, dataclass or Namespace with the configuration", got=found[:200])
    return value


def _is_bare(session: Session, run_id: str) -> bool:
    return session.bare is not None and session.bare.capsule.run_id == run_id


def _replaced(first: tuple[str, Storage], run_id: str) -> str:
    """Mark the run that has the failure without a configuration as resolved: two open ones would count twice."""
    try:
        resolve(first[0], note=f"Recorded again with its configuration, as run {run_id}.", storage=first[1])
    except WatcherError as error:
        return f" Run {first[0]}, which has it without a configuration, could not be marked as resolved: {error}"
    return f" Run {first[0]}, which has it without a configuration, is marked as resolved."


def _there_already(session: Session, config: str | None) -> Panel:
    assert session.recorded is not None
    run_id, storage = session.recorded
    if config is not None:
        raise UsageError(
            "--config", expected="a failure that is not on record", got=f"one that is, as run {run_id}",
            remedy="Its configuration is the one that its run was started with.",
        )  # fmt: skip
    capsule = data.capsule(storage, run_id)
    if capsule is None:
        raise NotFound(f"run {run_id} has no capsule", remedy="`%watcher failures` lists the failures on record.")
    return failure_page(capsule, f"This failure was on record already, as run {run_id}.")


def keep(session: Session) -> None:
    """Keep the evidence of a failure from before the extension was loaded: a refused magic takes its place in Python.

    Its memory would go with that as well, so it is given back here, where it can be told how much.
    """
    error = _remembered(session) if session.recorded is None and session.pending is None else None
    try:
        if error is None or _of_open_run(session, None):
            return
        remember(session, error)
        if failures.is_about_memory(classify_exception(error)):
            failures.release(session, error)
    finally:
        error = None


def _of_open_run(session: Session, config: str | None) -> bool:
    """Record the failure that Python remembers with the run that was open then; tell whether there was one.

    Such a run was started before the extension was loaded, or while it was unloaded: nobody saw its cell fail.
    """
    error, run = _remembered(session), session.runs.newest()
    try:
        if error is None or run is None or run.error_before == id(error) or (config is not None and not run.config):
            return False
        if config is not None:
            raise UsageError(
                "--config", expected="a failure without a run", got=f"one of run {run.run_id}, which was open",
                remedy="The failure is recorded with it, and with the configuration that it was started with.",
            )  # fmt: skip
        failures.handle(session, error, before_execution=False)
        return True
    finally:
        error = None


def _remembered(session: Session) -> BaseException | None:
    # A cell that does not compile has run nothing.
    found = (one for one in remembered(session.shell) if not isinstance(one, SyntaxError))
    return next((one for one in found if not failures.is_no_failure(one)), None)


def _record_pending(session: Session, pending: Pending, project: str | None, config: Any) -> record.Run:
    run, seen = _start(session, project, config), pending.capsule
    try:
        run.join_facts()
        # What this exception says is thrown away; the pieces that belong to the run are what it is made for.
        now = {piece.id: piece for piece in capture(run, RuntimeError(), None).evidence}
        cells = session.cells.evidence(pending.cell)
        if cells:
            now["EV-11"] = present("EV-11", cells, "notebook")
        evidence = tuple(now[piece.id] if piece.id in _OF_THE_RUN else piece for piece in seen.evidence)
        found = sum(piece.status == "present" for piece in evidence)
        record.add_capsule(
            run,
            seen.replace(
                run_id=run.run_id, project=run.project, evidence=evidence,
                completeness=Completeness(found, len(evidence)),
            ),
        )  # fmt: skip
    except BaseException as error:
        run.interrupt("its failure could not be put on record")
        run.storage.runs.drop_waiting(run.run_id)  # asked again, the failure becomes another run
        if isinstance(error, StoreError) and run.problems:  # without its run a capsule is refused for that reason only
            raise StoreError(f"this failure could not be put on record: {run.problems[0]}") from None
        raise
    run.interrupt(seen.failure.exception_type, status="failed")
    return run


def _record_remembered(
    session: Session, project: str | None, config: Any
) -> tuple[record.Run, Capsule | None, Release | None]:
    """Record the failure that Python remembers: one from before the extension was loaded."""
    error = _remembered(session)
    if error is None:
        raise NotFound("no failure is remembered", remedy="`%watcher failures` lists those that are on record.")
    release = None
    run = _start(session, project, config)
    try:
        run.fail(error)
        try:
            capsule = data.capsule(run.storage, run.run_id)
        except StoreError:
            run.storage.runs.drop_waiting(run.run_id)  # asked again, the failure becomes another run
            raise
        if failures.is_about_memory(classify_exception(error)):
            release, _ = failures.release(session, error)
        return run, capsule, release
    finally:
        error = None
        if run.status == "running":
            run.interrupt("its failure could not be put on record")


def _start(session: Session, project: str | None, config: Any) -> record.Run:
    run = record.init(project, config, session.storage())
    session.runs.told(run)  # its failure is shown by the magic and not by the end of the cell
    return run
