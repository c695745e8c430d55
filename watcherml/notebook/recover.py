"""``%%watcher recover``: from the last failure and a training function to a plan that waits for a person."""

from __future__ import annotations

import shlex
from argparse import Namespace
from functools import partial
from typing import TYPE_CHECKING

from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.errors import UsageError
from watcherml.notebook import body, command
from watcherml.notebook.command import require_variable
from watcherml.notebook.held import HeldMemory
from watcherml.notebook.modules import Module, add_body_flags, module_of, pin_folders
from watcherml.notebook.panels.base import Panel
from watcherml.notebook.panels.offer import offered
from watcherml.notebook.panels.plan import PlanPanel
from watcherml.notebook.panels.progress import ProgressPanel
from watcherml.notebook.spec import RecoverySpec
from watcherml.options import Parser, add_contract_flags, add_entrypoint_flags, add_policy_flags
from watcherml.store.storage import Storage

if TYPE_CHECKING:
    from watcherml.notebook.session import Session

PROGRAM = "%%watcher recover"
_SHOWN_METRICS = 4


def parser() -> Parser:
    """Return the parser of the magic's line."""
    made = Parser(prog=PROGRAM, add_help=False, description=(
        "Prepare a recovery of a run that ran out of memory. The cell's body is the training function with everything"
        " it needs; it is written to a file and checked in a child process. Nothing is run before Start."
    ))  # fmt: skip
    made.add_argument("--run", metavar="RUN_ID", help="the failed run (default: the last one that ran out of memory)")
    made.add_argument("--file", default=body.DEFAULT_FILE, metavar="NAME",
                      help="file that the body is written to (default: %(default)s)")  # fmt: skip
    made.add_argument("--name", default="recovery", metavar="VAR", help="variable for the panel (default: %(default)s)")
    made.add_argument("--yes", "--start", action="store_true", dest="start",
                      help="start at once; approves no proposal")  # fmt: skip
    made.add_argument("--approved-by", default="", metavar="NAME", help="name that approvals are given under")
    add_body_flags(made)
    add_entrypoint_flags(made, required=False)
    add_contract_flags(made)
    add_policy_flags(made)
    return made


def recover(session: Session, values: Namespace, source: str = "") -> Panel:
    """Prepare a recovery and return its panel, which is also assigned to the variable that ``--name`` gives.

    What the body lacks and earlier cells define is offered first, and nothing is prepared or written then. Raises
    ``UsageError`` for flags, ``InvalidEntrypoint`` for a body that cannot be a module, and what
    ``prepare_oom_recovery`` raises. Nothing has been run or started then, and the file is as it was before.
    """
    require_variable(session, values.name, (PlanPanel, ProgressPanel))
    pin_folders(values)
    run_id, storage = session.source_run(values.run)
    # What only reads flags comes before anything is written; the entrypoint is known after that.
    RecoverySpec(run_id, storage, TrainingEntrypoint("unknown:unknown"), values).check()
    _require_one_function(values, source)
    if values.entrypoint is not None:
        there = TrainingEntrypoint(values.entrypoint, values.working_directory)
        return _prepared(session, RecoverySpec(run_id, storage, there, values))
    module = module_of(session, values, source, values.file)
    go_on = partial(_from_body, session, values, module, (run_id, storage))
    if module.completed.copied and not values.copy_names:
        return offered(session, module, go_on, "prepares the recovery")
    return go_on()


def _from_body(session: Session, values: Namespace, module: Module, source: tuple[str, Storage]) -> Panel:
    with module.written(source[1]) as entrypoint:
        return _prepared(session, RecoverySpec(*source, entrypoint, values))


def _prepared(session: Session, spec: RecoverySpec) -> PlanPanel:
    values = spec.flags
    require_variable(session, values.name, (PlanPanel, ProgressPanel))  # an offer may have waited for long
    preparation = spec.prepare()
    require_variable(session, values.name, (PlanPanel, ProgressPanel))  # and a click works beside the person's cells
    panel = PlanPanel(
        preparation,
        name=values.name,
        notes=_notes,
        approver=values.approved_by.strip(),
        started=session.note_campaign,
        spec=spec,
        held=HeldMemory(session),
        project_root=values.project_root,
        python=values.python_executable,
    )
    session.shell.user_ns[values.name] = panel
    if values.start:
        panel.start()
    return panel


def parsed(line: str) -> Namespace:
    """Return the flags of the magic's line; ``UsageError`` for what does not parse."""
    return command.parsed(parser(), line)


def _require_one_function(values: Namespace, source: str) -> None:
    empty = not source.strip()
    if values.entrypoint is not None and not empty:
        raise UsageError("--entrypoint", expected="an empty cell body, because the function is in a file", got="both",
                         remedy="Leave one of them out.")  # fmt: skip
    if values.entrypoint is None and empty:
        raise UsageError(
            "the training function", expected="a cell body with it, or --entrypoint MODULE:FUNCTION", got="neither"
        )


def _notes(spec: RecoverySpec) -> tuple[str, ...]:
    notes = []
    if not spec.flags.metric and (guards := spec.suggested_metrics()):
        notes.append(_unguarded(guards))
    return tuple(notes)


def _unguarded(guards: tuple[str, ...]) -> str:
    names = ", ".join(one.rsplit(":", 3)[0] for one in guards[:_SHOWN_METRICS])
    more = " and more" if len(guards) > _SHOWN_METRICS else ""
    text = f"The run logged {names}{more}, and none is guarded: a change that makes them worse would still count as"
    return f"{text} success. To guard one:\n--metric {shlex.quote(guards[-1])}"
