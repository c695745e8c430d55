"""``%%watcher run``: a cell that is recorded as a run of its own.

The line of the magic is replaced by a call before IPython compiles the cell, and everything below it stays as it is.
So the body is an ordinary cell: ``await`` and magics work in it, names stay, lines keep their numbers, and its
exception is printed once. The run ends when the hook after the cell says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import re
import shlex
import tokenize
from argparse import Namespace
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from watcherml.api import record
from watcherml.api.record import Run
from watcherml.errors import UsageError
from watcherml.notebook import afterwards
from watcherml.notebook.command import asks_for_help, is_a, require_variable
from watcherml.notebook.panels.base import Panel, notice
from watcherml.options import Parser

if TYPE_CHECKING:
    from watcherml.notebook.session import Session

PROGRAM = "%%watcher run"
DEFAULT_CONFIG, DEFAULT_NAME = "config", "run"
# The word of the line magic that stands in the place of the cell magic; nobody types it.
BEGIN = "%run"
_FIRST_LINE = re.compile(r"%%watcher[ \t]+run(?![\w-])(?P<rest>.*)$")
_FOR_HELP = re.compile(r"%%watcher[ \t]+(?P<word>[a-z-]+)[ \t]+(--help|-h)[ \t]*$")


def parser() -> Parser:
    """Return the flags of the magic's line."""
    made = Parser(prog=PROGRAM, add_help=False, description=(
        "Record this cell as a run. The body is executed as an ordinary cell; the run ends with it."
    ))  # fmt: skip
    made.add_argument("--project", metavar="NAME", help="project of the run (default: that of %%watcher project)")
    made.add_argument("--config", metavar="NAME",
                      help="variable with the configuration (default: config, if it holds one)")  # fmt: skip
    made.add_argument("--name", default=DEFAULT_NAME, metavar="VAR", help="variable for the run (default: %(default)s)")
    return made


def transform(lines: list[str]) -> list[str]:
    """Return a cell's lines with a call in the place of ``%%watcher run``, or of a word with ``--help`` alone.

    Any other cell stays as it is. IPython calls this for every cell, and more than once: nothing but lines is changed.
    """
    first = lines[0].rstrip("\r\n") if lines else ""
    empty = not has_code("".join(lines[1:]))
    asked = _FOR_HELP.match(first)
    if asked is not None and empty:  # IPython calls no cell magic without a body
        return [f"get_ipython().run_line_magic('watcher', 'help {asked['word']}')\n", *lines[1:]]
    match = _FIRST_LINE.match(first)
    if match is None or empty or asks_for_help(match["rest"]):
        return lines
    line = f"{BEGIN} {match['rest'].strip()}".strip()
    begin = f"get_ipython().run_line_magic('watcher', {line!r})"
    body = lines[1:]
    if body[0].startswith("%%"):
        from IPython.core.inputtransformer2 import cell_magic

        body = cell_magic(body)  # type: ignore[no-untyped-call]
    # A future statement has to stay the first one.
    future = _end_of_future("".join(body))
    if future is None:
        return [begin + "\n", *body]
    row, column = future
    rows = "".join(body).split("\n")
    rows[row] = f"{rows[row][:column]}; {begin}{rows[row][column:]}"
    return ["#\n", *"\n".join(rows).splitlines(keepends=True)]


def _end_of_future(text: str) -> tuple[int, int] | None:
    """Return the row and column, from 0, behind the last future statement; None if the text begins with none."""
    end, statement = None, []
    with contextlib.suppress(tokenize.TokenError, SyntaxError):  # magics below are not ours to read
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.COMMENT, tokenize.NL):
                continue
            if token.type not in (tokenize.NEWLINE, tokenize.ENDMARKER) and token.string != ";":
                statement.append(token)
                continue
            if [one.string for one in statement[:2]] == ["from", "__future__"]:
                end = statement[-1].end[0] - 1, statement[-1].end[1]
            elif any(one.type != tokenize.STRING for one in statement):
                break
            statement = []
    return end


def has_code(text: str) -> bool:
    """Tell whether there is anything but empty lines and comments."""
    return any(line.strip() and not line.strip().startswith("#") for line in text.splitlines())


@dataclasses.dataclass
class CellRun:
    """The run of the cell that is being executed. ``depth`` counts the cells around it, itself included."""

    run: Run
    name: str
    depth: int


def begin(session: Session, values: Namespace) -> None:
    """Start the run of the cell that is being executed; called by what ``transform`` has put there.

    Raises ``UsageError`` for a variable that holds no configuration or that is taken; nothing has been executed then.
    """
    if not session.cells.depth:
        raise UsageError(PROGRAM, expected="a cell whose end IPython tells of", got="a silent one",
                         remedy="Use `with watcherml.init(config=...) as run:` there.")  # fmt: skip
    require_variable(session, values.name, (Run,))
    config, words = _config(session, values.config)
    run = record.Run(values.project, config, session.storage())
    with_cell = CellRun(run, values.name, session.cells.depth)
    run.__enter__()  # so that nothing takes it for a run that a later init() has left behind
    session.cell_runs.append(with_cell)
    session.shell.user_ns[values.name] = run
    if words:
        session.show(notice(words, "quiet"))


def end(session: Session, depth: int, error: BaseException | None) -> None:
    """End the runs of a cell that has ended as the cell did; one that its body has ended stays as it is."""
    while session.cell_runs and session.cell_runs[-1].depth >= depth:
        one = session.cell_runs.pop()
        one.run.__exit__(None if error is None else type(error), error, None)
        if session.shell.user_ns.get(one.name) is not one.run:
            text = f"The cell has made `{one.name}` something else; its run was {one.run.run_id}."
            session.show(notice(text, "quiet"))


def as_cell(session: Session, values: Namespace, body: str) -> Panel | None:
    """Do the same for a call of the magic from code: the body is a cell within the cell.

    Raises ``UsageError`` for an empty body, and where ``await`` would have to wait for the loop that runs this cell;
    what the body raises is raised again.
    """
    if not has_code(body):
        raise UsageError(PROGRAM, expected="a body below the first line", got="nothing that could be run")
    shell = session.shell
    told = {name: getattr(values, name) for name in ("project", "config", "name")}
    flags = [f"--{name} {shlex.quote(value)}" for name, value in told.items() if value]
    source = f"%%watcher run {' '.join(flags)}\n{body}"
    if _awaits(shell, source) and _loop_runs():
        raise UsageError(PROGRAM, expected="a body without await, where code calls the magic", got="one that awaits",
                         remedy="Write %%watcher run as the first line of a cell of its own.")  # fmt: skip
    result = shell.run_cell(source, store_history=False)
    error = result.error_before_exec or result.error_in_exec
    if error is not None:
        session.told_of = id(error)  # the hook around this cell has dealt with it
        try:
            raise error
        finally:
            error = result = None
    return None


def _awaits(shell: Any, source: str) -> bool:
    try:
        return bool(shell.should_run_async(source, transformed_cell=shell.transform_cell(source)))
    except SyntaxError:  # said when the cell is executed
        return False


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _config(session: Session, name: str | None) -> tuple[Any, str]:
    """Return the configuration and what there is to say about it."""
    if name is not None:
        return afterwards.configuration(session, name), ""
    value = session.shell.user_ns.get(DEFAULT_CONFIG)
    # A mapping is copied by the recorder, which takes one that raises while it is read.
    if is_a(value, (Mapping, Namespace, SimpleNamespace)) or dataclasses.is_dataclass(type(value)):
        return value, ""
    found = "there is no variable config" if value is None else f"`config` is a {type(value).__name__}"
    return {}, (
        f"This run has no configuration: {found}. A recovery starts from one: --config NAME names the variable."
    )
