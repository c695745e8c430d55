"""``%watcher`` and ``%%watcher``: one table of words each, with a short function that returns a panel."""

from __future__ import annotations

import contextlib
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from watcherml.api import doctor, record
from watcherml.errors import UsageError, WatcherError
from watcherml.forensics.release import release_frames
from watcherml.notebook import afterwards, campaigns, entrypoint_cell, leaving, onrecord, recover, run_cell
from watcherml.notebook.command import (
    CellCommand,
    Command,
    arguments_of,
    asks_for_help,
    help_page,
    parsed,
    parser_of,
)
from watcherml.notebook.panels.base import Page, Panel, notice
from watcherml.notebook.panels.run import run_panel
from watcherml.options import Parser
from watcherml.report import markup, plain
from watcherml.report.palette import Tone
from watcherml.report.safe import many_lines
from watcherml.report.units import format_bytes, plural

if TYPE_CHECKING:
    from watcherml.notebook.session import Session

_TONES: dict[str, Tone] = {"ok": "good", "warn": "warn", "fail": "bad"}
_ON_OFF = {"on": True, "off": False}


def line_magic(session: Session) -> Callable[[str], Any]:
    """Return the function behind ``%watcher``."""

    def watcher(line: str) -> Panel | None:
        """Ask WatcherML something: ``%watcher help`` lists the words."""
        word, rest = _first_word(line)
        if word == run_cell.BEGIN:
            _answer(session, lambda: run_cell.begin(session, parsed(run_cell.parser(), rest)))
            return None
        return _answer(session, lambda: _asked(session, word or "help", rest))

    return watcher


def cell_magic(session: Session) -> Callable[[str, str], Any]:
    """Return the function behind ``%%watcher``."""

    def watcher(line: str, cell: str) -> Panel | None:
        """Do something with this cell: ``%%watcher run``, ``%%watcher entrypoint FILE``, ``%%watcher recover``."""
        word, rest = _first_word(line)
        return _answer(session, lambda: _asked_of_cell(session, word, rest, cell))

    return watcher


def _first_word(line: str) -> tuple[str, str]:
    words = line.strip().rstrip(";").strip().split(None, 1)
    return (words[0] if words else ""), (words[1] if len(words) > 1 else "")


def _answer(session: Session, run: Callable[[], Panel | None]) -> Panel | None:
    session.flush()  # what is asked for may be the cell before
    try:
        return run()
    except (WatcherError, OSError) as error:
        if id(error) == session.told_of:
            raise  # the person's own, of a body that this magic was called with
        # IPython prints its own UsageError as one line; a traceback through this package helps nobody.
        from IPython.core.error import UsageError as OneLine

        with contextlib.suppress(Exception):  # the refusal has to be said
            afterwards.keep(session)
        remedy = "" if isinstance(error, WatcherError) else " (from the system; `%watcher doctor` looks for the reason)"
        raise OneLine(many_lines(f"{error}{remedy}", 6_000)) from None


def _asked(session: Session, word: str, rest: str) -> Panel | None:
    if word in ("--help", "-h"):
        word = "help"
    if word in CELL_COMMANDS and word not in COMMANDS and asks_for_help(rest):
        return help_page(CELL_COMMANDS[word].parser())
    if word not in COMMANDS:
        hint = f"%%watcher {word} is the first line of a cell." if word in CELL_COMMANDS else ""
        raise UsageError("%watcher", expected="one of " + ", ".join(COMMANDS), got=repr(word)[:80], remedy=hint)
    command = COMMANDS[word]
    if asks_for_help(rest):
        return help_page(line_parser(word))
    values = Namespace(text=rest) if command.raw else parsed(line_parser(word), rest)
    return command.run(session, values)


def _asked_of_cell(session: Session, word: str, rest: str, cell: str) -> Panel | None:
    if word in ("", "--help", "-h"):
        return _help(session, Namespace(word=None))
    if word not in CELL_COMMANDS:
        hint = f"%watcher {word} is a line of its own, with one %." if word in COMMANDS else ""
        raise UsageError("%%watcher", expected="one of " + ", ".join(CELL_COMMANDS), got=repr(word)[:80],
                         remedy=f"{hint} `%watcher help` lists all words.".strip())  # fmt: skip
    command = CELL_COMMANDS[word]
    if asks_for_help(rest):
        return help_page(command.parser())
    return command.run(session, parsed(command.parser(), rest), cell)


def line_parser(word: str) -> Parser:
    """Return the flags of a word after ``%watcher``."""
    return recover.parser() if word == "recover" else parser_of(word, COMMANDS[word])


def _project(session: Session, values: Namespace) -> Panel:
    rest = values.text
    name = rest[1:-1] if len(rest) > 1 and rest[0] == rest[-1] and rest[0] in "\"'" else rest
    if not name:
        chosen = record.default_project()
        return notice(f"The project is {chosen}." if chosen else "No project is set; runs take the folder's name.")
    if len(name) > 400 or not name.isprintable():
        raise UsageError("%watcher project", expected="a name of at most 400 printable characters", got=repr(name)[:80])
    record.set_default_project(name)
    return notice(f"Runs that name no project belong to {name}.", "good")


def _declare_project(parser: Parser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="without it the present project is shown")


def _status(session: Session, values: Namespace) -> Panel:
    run, storage = session.runs.newest(), session.storage()
    if run is not None:
        session.show(run_panel(run))
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


def _declare_free(parser: Parser) -> None:
    parser.add_argument("--keep-stack", action="store_true",
                        help="keep the stack for %%tb and %%debug, without its variables")  # fmt: skip


def _free(session: Session, values: Namespace) -> Panel:
    release = session.released = release_frames(None, session.shell, keep_stack=values.keep_stack)
    session.frames_kept = session.frames_kept and not release.exceptions
    tone: Tone = "good" if release.exceptions else "quiet"
    held = [f"Still held: {one.name}, {format_bytes(one.bytes)}, {one.what}" for one in release.kept]
    return notice("\n".join([release.sentence, *held]), tone, "wml-release")


def _declare_keep_frames(parser: Parser) -> None:
    parser.add_argument("state", nargs="?", choices=tuple(_ON_OFF), help="without it the present state is shown")


def _keep_frames(session: Session, values: Namespace) -> Panel:
    session.keep_frames = _ON_OFF.get(values.state, session.keep_frames)
    if session.keep_frames:
        return notice("A cell that runs out of memory keeps its frames, for %debug; `%watcher free` lets them go.")
    return notice("A cell that runs out of memory gives its memory back at once; %debug has nothing to walk then.")


def _doctor(session: Session, values: Namespace) -> Panel:
    findings = list(doctor.examine(session.storage()))
    lines = [f"{one.status:<5} {one.name}: {one.sentence} {one.remedy}".rstrip() for one in findings]
    text = plain.finish(part for line in lines for part in plain.wrap(line, " " * 6))
    cells = [
        (markup.chip(one.status, _TONES[one.status]), markup.shown(one.name),
         markup.shown(f"{one.sentence} {one.remedy}".strip(), 400))
        for one in findings
    ]  # fmt: skip
    return Page(text, markup.root(markup.grid(("", "What", "Found"), cells, wrapped=(2,)), wide=True))


def _declare_help(parser: Parser) -> None:
    parser.add_argument("word", nargs="?", metavar="WORD", help="one of the words; without it all are listed")


def _help(session: Session, values: Namespace) -> Panel:
    if values.word is not None:
        return _help_of(str(values.word))
    rows = [(f"%watcher {name} {arguments_of(name, one)}".rstrip(), one.words) for name, one in COMMANDS.items()]
    rows += [(f"%%watcher {name} {one.arguments}", one.words) for name, one in CELL_COMMANDS.items()]
    text = plain.finish(line for usage, words in rows for line in (usage, f"    {words}"))
    cells = [(markup.mono(usage), markup.escape(words)) for usage, words in rows]
    table = markup.grid(("Magic", "What it does"), cells, wrapped=(1,))
    more = markup.paragraph(markup.quiet(markup.escape("`%watcher help WORD` lists the flags of a word.")))
    return Page(f"{text}`%watcher help WORD` lists the flags of a word.\n", markup.root(table, more, wide=True))


def _help_of(asked: str) -> Page:
    word = asked.lstrip("%")
    parsers = [line_parser(word)] if word in COMMANDS and word != "recover" else []
    parsers += [CELL_COMMANDS[word].parser()] if word in CELL_COMMANDS else []
    if not parsers:
        words = dict.fromkeys([*COMMANDS, *CELL_COMMANDS])
        raise UsageError("%watcher help", expected="one of " + ", ".join(words), got=repr(asked)[:80])
    return help_page(parsers[0])


COMMANDS: dict[str, Command] = {
    "project": Command(
        "set or show the project of runs that name none", _project, _declare_project, "[NAME]", raw=True
    ),
    "status": Command("the open run, the recorded cells and the store", _status),
    "runs": Command("the recorded runs, newest first", onrecord.runs, onrecord.declare_runs, "[flags]"),
    "inspect": Command(
        "one run with its metrics, and its failure if it has one", onrecord.inspect, onrecord.declare_run_id, ids="runs"
    ),
    "compare": Command(
        "what differs between two runs, most suspicious first",
        onrecord.compare,
        onrecord.declare_compare,
        "RUN_A RUN_B",
        ids="runs",
    ),
    "failures": Command("the failures on record", onrecord.failures, onrecord.declare_failures, "[flags]"),
    "resolve": Command(
        "mark a failure as resolved, or open it again",
        onrecord.resolved,
        onrecord.declare_resolve,
        "RUN_ID [flags]",
        ids="failures",
    ),
    "capture": Command(
        "put the last failure on record if nothing has: as a run, or in the one that was open",
        lambda session, values: afterwards.put_on_record(session, values),
        afterwards.declare,
    ),
    "free": Command("give back the memory that the last failed cell holds", _free, _declare_free),
    "keep-frames": Command(
        "keep the frames of an out-of-memory cell for %debug", _keep_frames, _declare_keep_frames, "[on|off]"
    ),
    "recover": Command(
        "prepare a recovery with a function in a file",
        lambda session, values: recover.recover(session, values),
        arguments="--entrypoint MODULE:FUNCTION [flags]",
    ),
    "plan": Command(
        "show a plan again; one that waits can be decided on and started",
        campaigns.plan,
        campaigns.declare_plan,
        "RUN_ID|CAMPAIGN_ID|DIGEST [flags]",
        ids="plans",
    ),
    "recoveries": Command("the recovery campaigns", onrecord.recoveries, onrecord.declare_recoveries, "[flags]"),
    "recovery": Command(
        "watch a campaign from here (default: the last one)",
        campaigns.recovery,
        campaigns.declare_campaign,
        ids="campaigns",
    ),
    "stop": Command(
        "end a running campaign; what it has stays on record",
        campaigns.stop,
        campaigns.declare_campaign,
        ids="campaigns",
    ),
    "resume": Command(
        "take up a campaign whose supervising process is gone",
        campaigns.resume,
        campaigns.declare_campaign,
        ids="campaigns",
    ),
    "verify": Command(
        "recompute a result, a plan, a ZIP of them or a campaign, and say what it is worth here",
        onrecord.verify,
        onrecord.declare_verify,
        ids="campaigns",
    ),
    "export": Command(
        "a run with its evidence in one checksummed ZIP",
        leaving.export,
        leaving.declare_export,
        "RUN_ID [--out FILE] [--force]",
        ids="runs",
    ),
    "download": Command("the whole store in one ZIP, with a link to it", leaving.download, leaving.declare_download),
    "doctor": Command("what works here and what is weaker; runs a small trial", _doctor),
    "help": Command("this list, or the flags of one word", _help, _declare_help),
}

CELL_COMMANDS: dict[str, CellCommand] = {
    "run": CellCommand("record this cell as a run", run_cell.as_cell, run_cell.parser),
    "entrypoint": CellCommand(
        "write the body to a module that recoveries can import",
        entrypoint_cell.entrypoint,
        entrypoint_cell.parser,
        "FILE [flags]",
    ),
    "recover": CellCommand(
        "prepare a recovery; the cell's body is the training function", recover.recover, recover.parser
    ),
}
