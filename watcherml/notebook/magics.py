"""``%watcher`` and ``%%watcher``: one table of commands, each a short function that returns a panel."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from watcherml.api import data, doctor, record
from watcherml.api.recover import resume_recovery
from watcherml.errors import UsageError, WatcherError
from watcherml.forensics.release import release_frames
from watcherml.notebook import afterwards, recover
from watcherml.notebook.faces import run_page
from watcherml.notebook.panels.base import Page, Panel, notice
from watcherml.notebook.panels.compare import compare_runs
from watcherml.notebook.panels.progress import ProgressPanel
from watcherml.options import Parser
from watcherml.report import markup, plain
from watcherml.report.html import html_campaigns_table, html_failures_table, html_runs_table
from watcherml.report.palette import Tone
from watcherml.report.safe import many_lines, one_line
from watcherml.report.text import campaigns_table, failures_table, runs_table
from watcherml.report.units import format_bytes, plural

if TYPE_CHECKING:
    from watcherml.notebook.session import Session

_TONES: dict[str, Tone] = {"ok": "good", "warn": "warn", "fail": "bad"}
_ON_OFF = {"on": True, "off": False}


@dataclass(frozen=True)
class Command:
    """One word after ``%watcher``: what may follow it, what it does, and the function that does it."""

    arguments: str
    words: str
    run: Callable[[Session, str], Panel | None]


def line_magic(session: Session) -> Callable[[str], Any]:
    """Return the function behind ``%watcher``."""

    def watcher(line: str) -> Panel | None:
        """Ask WatcherML something: ``%watcher help`` lists the words."""
        word, _, rest = line.strip().rstrip(";").strip().partition(" ")
        return _answer(session, lambda: _command(word or "help").run(session, rest.strip()))

    return watcher


def cell_magic(session: Session) -> Callable[[str, str], Any]:
    """Return the function behind ``%%watcher``."""

    def watcher(line: str, cell: str) -> Panel | None:
        """Prepare a recovery with the function in this cell: ``%%watcher recover [flags]``."""
        word, _, rest = line.strip().partition(" ")

        def run() -> Panel | None:
            if word != "recover":
                raise UsageError("%%watcher", expected="%%watcher recover [flags]", got=repr(word)[:80],
                                 remedy="`%watcher help` lists the line magics.")  # fmt: skip
            return recover.recover(session, rest, cell)

        return _answer(session, run)

    return watcher


def _answer(session: Session, run: Callable[[], Panel | None]) -> Panel | None:
    session.flush()  # what is asked for may be the cell before
    try:
        return run()
    except WatcherError as error:
        # IPython prints its own UsageError as one line; a traceback through this package helps nobody.
        from IPython.core.error import UsageError as OneLine

        raise OneLine(many_lines(error, 6_000)) from None


def _command(word: str) -> Command:
    if word not in COMMANDS:
        raise UsageError("%watcher", expected="one of " + ", ".join(COMMANDS), got=repr(word)[:80])
    return COMMANDS[word]


def _project(session: Session, rest: str) -> Panel:
    name = rest[1:-1] if len(rest) > 1 and rest[0] == rest[-1] and rest[0] in "\"'" else rest
    if not name:
        chosen = record.default_project()
        return notice(f"The project is {chosen}." if chosen else "No project is set; runs take the folder's name.")
    if len(name) > 400 or not name.isprintable():
        raise UsageError("%watcher project", expected="a name of at most 400 printable characters", got=repr(name)[:80])
    record.set_default_project(name)
    return notice(f"Runs that name no project belong to {name}.", "good")


def _status(session: Session, rest: str) -> Panel:
    run, storage = session.runs.newest(), session.storage()
    state = f"{run.run_id}, running" if run is not None else "none is open; start one with watcherml.init(config=...)"
    where = str(storage.path) + ("" if storage.exists else " (made by the first run)")
    kept = (
        "a cell that runs out of memory keeps its frames"
        if session.keep_frames
        else ("a cell that runs out of memory gives it back at once")
    )
    rows = [
        ("Run", state),
        ("Project", record.default_project() or "the folder's name"),
        ("Cells", f"{plural(session.cells.count, 'cell')} recorded in this session ({session.session_id})"),
        ("Store", where),
        ("Memory", kept),
    ]
    if session.problems:
        rows.append(("Problems", f"{len(session.problems)}, the last: {session.problems[-1]}"))
    text = plain.finish(line for name, value in rows for line in plain.pair(name, value))
    return Page(text, markup.root(markup.pairs([(name, markup.shown(value, 300)) for name, value in rows])))


def _runs(session: Session, rest: str) -> Panel:
    values = _flags("runs", rest, ("--all", "include the runs of recovery trials"))
    rows = data.runs(session.storage(), project=values.project, limit=values.limit, trials=values.all)
    return Page(runs_table(rows), html_runs_table(rows))


def _failures(session: Session, rest: str) -> Panel:
    values = _flags("failures", rest, ("--unresolved", "only those that nobody has resolved"))
    rows = data.failures(session.storage(), project=values.project, unresolved=values.unresolved, limit=values.limit)
    return Page(failures_table(rows), html_failures_table(rows))


def _recoveries(session: Session, rest: str) -> Panel:
    values = _flags("recoveries", rest, ("--verified", "only those with a verified result"))
    rows = data.campaigns(session.storage(), project=values.project, verified=values.verified, limit=values.limit)
    return Page(campaigns_table(rows), html_campaigns_table(rows))


def _inspect(session: Session, rest: str) -> Panel:
    storage, run_id = session.storage(), _one("inspect", rest, "RUN_ID")
    return run_page(storage, data.run(storage, run_id))


def _compare(session: Session, rest: str) -> Panel:
    return compare_runs(session.storage(), _words("compare", rest))


def _recovery(session: Session, rest: str) -> Panel:
    panel = ProgressPanel(session.campaign(_optional("recovery", rest, "CAMPAIGN_ID")))
    return _follow(session, panel)


def _resume(session: Session, rest: str) -> Panel:
    campaign = session.campaign(_optional("resume", rest, "CAMPAIGN_ID"))
    return _follow(session, ProgressPanel(resume_recovery(campaign.campaign_id, campaign.storage)))


def _stop(session: Session, rest: str) -> Panel:
    panel = ProgressPanel(session.campaign(_optional("stop", rest, "CAMPAIGN_ID")))
    return panel.stop()


def _follow(session: Session, panel: ProgressPanel) -> Panel:
    session.note_campaign(panel.campaign)
    present = session.shell.user_ns.get(panel.name)
    if present is None or isinstance(present, Panel):
        session.shell.user_ns[panel.name] = panel  # so that the calls which the panel names work
    return panel.follow()


def _free(session: Session, rest: str) -> Panel:
    values = _flags("free", rest, ("--keep-stack", "keep the stack for %tb and %debug, without its variables"))
    release = session.released = release_frames(None, session.shell, keep_stack=values.keep_stack)
    session.frames_kept = session.frames_kept and not release.exceptions
    tone: Tone = "good" if release.exceptions else "quiet"
    held = [f"Still held: {one.name}, {format_bytes(one.bytes)}, {one.what}" for one in release.kept]
    return notice("\n".join([release.sentence, *held]), tone, "wml-release")


def _capture(session: Session, rest: str) -> Panel:
    return afterwards.put_on_record(session, _words("capture", rest))


def _keep_frames(session: Session, rest: str) -> Panel:
    if rest and rest not in _ON_OFF:
        raise UsageError("%watcher keep-frames", expected="on or off", got=repr(rest)[:80])
    session.keep_frames = _ON_OFF.get(rest, session.keep_frames)
    if session.keep_frames:
        return notice("A cell that runs out of memory keeps its frames, for %debug; `%watcher free` lets them go.")
    return notice("A cell that runs out of memory gives its memory back at once; %debug has nothing to walk then.")


def _doctor(session: Session, rest: str) -> Panel:
    findings = list(doctor.examine(session.storage()))
    lines = [f"{one.status:<5} {one.name}: {one.sentence} {one.remedy}".rstrip() for one in findings]
    text = plain.finish(part for line in lines for part in plain.wrap(line, " " * 6))
    cells = [
        (markup.chip(one.status, _TONES[one.status]), markup.shown(one.name),
         markup.shown(f"{one.sentence} {one.remedy}".strip(), 400))
        for one in findings
    ]  # fmt: skip
    return Page(text, markup.root(markup.grid(("", "What", "Found"), cells, wrapped=(2,)), wide=True))


def _recover(session: Session, rest: str) -> Panel:
    return recover.recover(session, rest, "")


def _help(session: Session, rest: str) -> Panel:
    rows = [(f"%watcher {name} {one.arguments}".rstrip(), one.words) for name, one in COMMANDS.items()]
    rows.append(("%%watcher recover [flags]", "prepare a recovery; the cell's body is the training function (--help)"))
    text = plain.finish(line for usage, words in rows for line in (usage, f"    {words}"))
    cells = [(markup.mono(usage), markup.escape(words)) for usage, words in rows]
    table = markup.grid(("Magic", "What it does"), cells, wrapped=(1,))
    return Page(text, markup.root(table, wide=True))


def _flags(name: str, rest: str, flag: tuple[str, str]) -> Any:
    made = Parser(prog=f"%watcher {name}", add_help=False)
    made.add_argument(flag[0], action="store_true", help=flag[1])
    if name != "free":
        made.add_argument("--project", metavar="NAME")
        made.add_argument("--limit", type=int, default=20, metavar="N")
    return made.parse_args(_words(name, rest))


def _words(name: str, rest: str) -> list[str]:
    try:
        return shlex.split(rest)
    except ValueError as error:
        raise UsageError(f"%watcher {name}", expected="balanced quotes", got=str(error)) from None


def _optional(name: str, rest: str, what: str) -> str | None:
    words = _words(name, rest)
    if len(words) > 1:
        raise UsageError(f"%watcher {name}", expected=f"at most one {what}", got=one_line(rest, 120))
    return words[0] if words else None


def _one(name: str, rest: str, what: str) -> str:
    found = _optional(name, rest, what)
    if found is None:
        raise UsageError(f"%watcher {name}", expected=f"a {what}", got="nothing")
    return found


COMMANDS: dict[str, Command] = {
    "project": Command("[NAME]", "set or show the project of runs that name none", _project),
    "status": Command("", "the open run, the recorded cells and the store", _status),
    "runs": Command("[--project NAME] [--limit N] [--all]", "the recorded runs, newest first", _runs),
    "inspect": Command("RUN_ID", "one run with its metrics, and its failure if it has one", _inspect),
    "compare": Command("RUN_A RUN_B", "what differs between two runs, most suspicious first", _compare),
    "failures": Command("[--project NAME] [--limit N] [--unresolved]", "the failures on record", _failures),
    "capture": Command(
        "[--config NAME] [--project NAME]", "put the last failure on record if no run was open when it came", _capture
    ),
    "free": Command("[--keep-stack]", "give back the memory that the last failed cell holds", _free),
    "keep-frames": Command("[on|off]", "keep the frames of an out-of-memory cell for %debug", _keep_frames),
    "recover": Command(
        "--entrypoint MODULE:FUNCTION [flags]", "prepare a recovery with a function in a file", _recover
    ),
    "recoveries": Command("[--project NAME] [--limit N] [--verified]", "the recovery campaigns", _recoveries),
    "recovery": Command("[CAMPAIGN_ID]", "watch a campaign from here (default: the last one)", _recovery),
    "stop": Command("[CAMPAIGN_ID]", "end a running campaign; what it has stays on record", _stop),
    "resume": Command("[CAMPAIGN_ID]", "take up a campaign whose supervising process is gone", _resume),
    "doctor": Command("", "what works here and what is weaker; runs a small trial", _doctor),
    "help": Command("", "this list", _help),
}
