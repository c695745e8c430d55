"""``%%watcher recover``: from the last failure and a training function to a plan that waits for a person."""

from __future__ import annotations

import math
import shlex
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watcherml.api import data
from watcherml.api.recover import Campaign, prepare_oom_recovery
from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.errors import CampaignError, UsageError
from watcherml.notebook import body
from watcherml.notebook.panels.base import Page, Panel
from watcherml.notebook.panels.plan import PlanPanel
from watcherml.notebook.panels.progress import ProgressPanel
from watcherml.options import (
    Parser,
    add_contract_flags,
    add_entrypoint_flags,
    add_policy_flags,
    budget,
    permissions,
    prepare_options,
    requirements,
    steps_of,
)
from watcherml.report import markup
from watcherml.store.storage import Storage

if TYPE_CHECKING:
    from watcherml.notebook.session import Session

PROGRAM = "%%watcher recover"
_SHOWN_METRICS = 4


@dataclass(frozen=True)
class _Source:
    """The run that a recovery starts from."""

    run_id: str
    storage: Storage
    config: Mapping[str, Any]


def parser() -> Parser:
    """Return the parser of the magic's line."""
    made = Parser(prog=PROGRAM, add_help=False, description=(
        "Prepare a recovery of a run that ran out of memory. The cell's body is the training function with everything"
        " it needs; it is written to a file and checked in a child process. Nothing is run before Start."
    ))  # fmt: skip
    made.add_argument("--help", "-h", action="store_true", help="show this text")
    made.add_argument("--run", metavar="RUN_ID", help="the failed run (default: the last one that ran out of memory)")
    made.add_argument("--file", default=body.DEFAULT_FILE, metavar="NAME",
                      help="file that the body is written to (default: %(default)s)")  # fmt: skip
    made.add_argument("--function", metavar="NAME",
                      help="the body's training function (default: the one with config and max_steps)")  # fmt: skip
    made.add_argument("--name", default="recovery", metavar="VAR", help="variable for the panel (default: %(default)s)")
    made.add_argument("--yes", "--start", action="store_true", dest="start",
                      help="start at once; approves no proposal")  # fmt: skip
    made.add_argument("--approved-by", default="", metavar="NAME", help="name that approvals are given under")
    add_entrypoint_flags(made, required=False)
    add_contract_flags(made)
    add_policy_flags(made)
    return made


def recover(session: Session, line: str, source: str) -> Panel:
    """Prepare a recovery and return its panel, which is also assigned to the variable that ``--name`` gives.

    Raises ``UsageError`` for flags, ``InvalidEntrypoint`` for a body that cannot be a module, and what
    ``prepare_oom_recovery`` raises. Nothing has been run or started then.
    """
    values = parsed(line)
    if values.help:
        return Page(parser().format_help(), markup.root(markup.block(markup.escape_lines(parser().format_help()))))
    _check_name(session, values.name)
    run_id, storage = session.source_run(values.run)
    origin = _Source(run_id, storage, data.run(storage, run_id)["config"])
    # What only reads flags comes before anything is written.
    wanted = requirements(values, steps_of(dict(origin.config)))
    spending, ceiling, rest = budget(values), permissions(values), prepare_options(values)
    entrypoint = _entrypoint(session, values, source, storage)
    preparation = prepare_oom_recovery(run_id, entrypoint, wanted, spending, ceiling, storage=storage, **rest)
    panel = PlanPanel(
        preparation,
        name=values.name,
        notes=_notes(session, values, origin),
        approver=values.approved_by.strip(),
        started=session.note_campaign,
        project_root=values.project_root,
        python=values.python_executable,
    )
    session.shell.user_ns[values.name] = panel
    if values.start:
        panel.start()
    return panel


def parsed(line: str) -> Namespace:
    """Return the flags of the magic's line; ``UsageError`` for what does not parse."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(PROGRAM, expected="flags with balanced quotes", got=str(error)) from None
    return parser().parse_args(words)


def _check_name(session: Session, name: str) -> None:
    if not name.isidentifier():
        raise UsageError("--name", expected="a variable's name", got=repr(name)[:80])
    present = session.shell.user_ns.get(name)
    if present is not None and not isinstance(present, (PlanPanel, ProgressPanel)):
        raise UsageError(
            "--name", expected="a name that is free",
            got=f"`{name}`, which holds your own {type(present).__name__}",
            remedy="Give another variable, for example --name my_recovery.",
        )  # fmt: skip


def _entrypoint(session: Session, values: Namespace, source: str, storage: Storage) -> TrainingEntrypoint:
    empty = not source.strip()
    if values.entrypoint is not None:
        if not empty:
            raise UsageError("--entrypoint", expected="an empty cell body, because the function is in a file",
                             got="both", remedy="Leave one of them out.")  # fmt: skip
        return TrainingEntrypoint(values.entrypoint, values.working_directory)
    if empty:
        raise UsageError(
            "the training function", expected="a cell body with it, or --entrypoint MODULE:FUNCTION", got="neither"
        )
    function = body.training_function(source, values.function)
    body.require_complete(source, session.cells.sources())
    path = body.file_path(values.file, values.project_root, values.working_directory)
    _refuse_in_use(path, source, storage)
    body.write(path, source)
    return TrainingEntrypoint(f"{path.stem}:{function}", values.working_directory)


def _refuse_in_use(path: Path, source: str, storage: Storage) -> None:
    """A running campaign's trials must find the code that was sealed; another body would break all of them."""
    if not path.exists() or source.strip() in path.read_text("utf-8", "replace"):
        return
    for row in data.campaigns(storage, limit=20):
        if row["lifecycle"] not in ("running", "prepared"):
            continue
        campaign = Campaign(row["campaign_id"], storage)
        entrypoint, settings = campaign.plan.contract.entrypoint, campaign.events()[0]["body"]
        folder = Path(settings.get("project_root", "")) / entrypoint.working_directory
        if entrypoint.module == path.stem and folder.resolve() == path.parent.resolve():
            raise CampaignError(
                f"campaign {campaign.campaign_id} is running the code in {path.name}",
                remedy=f"Wait for it, stop it with `%watcher stop {campaign.campaign_id}`, or give another --file.",
            )


def _notes(session: Session, values: Namespace, origin: _Source) -> tuple[str, ...]:
    notes = []
    if not values.metric:
        last: dict[str, float] = {}
        for point in origin.storage.get_metrics(origin.run_id):
            if point["name"] != values.progress_metric and point["value"] is not None:
                last[str(point["name"])] = float(point["value"])
        if last:
            notes.append(_unguarded(last))
    if session.frames_kept:
        notes.append(
            "The failed cell still holds its memory in this kernel, and trials on the same device would miss it."
            " `%watcher free` gives it back."
        )
    return tuple(notes)


def _unguarded(last: Mapping[str, float]) -> str:
    names = ", ".join(list(last)[:_SHOWN_METRICS]) + (" and more" if len(last) > _SHOWN_METRICS else "")
    text = f"The run logged {names}, and none is guarded: a change that makes them worse would still count as success."
    name, value = list(last.items())[-1]
    if math.isfinite(value):
        text += f" To guard one:\n--metric {shlex.quote(f'{name}:minimize:{value:g}:{abs(value) / 10:.2g}')}"
    return text
