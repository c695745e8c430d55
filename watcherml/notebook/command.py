"""A word after ``%watcher`` or ``%%watcher``: its flags, its help, and reading what a person typed after it."""

from __future__ import annotations

import keyword
import shlex
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from watcherml.errors import UsageError
from watcherml.notebook.panels.base import Page, Panel
from watcherml.options import Parser
from watcherml.report import markup

if TYPE_CHECKING:
    from watcherml.notebook.session import Session

# What the first argument of a word names, so that the ids of the store can be completed.
Ids = Literal["", "runs", "failures", "campaigns", "plans"]


@dataclass(frozen=True)
class Command:
    """One word after ``%watcher``: what it does, the function that does it, and what may follow it.

    ``arguments`` stands in the list of all words; where it is None, the parser's usage line does. A ``raw`` word gets
    the text after it as ``values.text``, whatever quotes are in it.
    """

    words: str
    run: Callable[[Session, Namespace], Panel | None]
    declare: Callable[[Parser], None] = lambda parser: None
    arguments: str | None = None
    ids: Ids = ""
    raw: bool = False


@dataclass(frozen=True)
class CellCommand:
    """One word after ``%%watcher``: the function gets the cell's body as well, and ``parser`` makes its flags."""

    words: str
    run: Callable[[Session, Namespace, str], Panel | None]
    parser: Callable[[], Parser]
    arguments: str = "[flags]"


def parser_of(name: str, command: Command) -> Parser:
    """Return the flags of a word."""
    made = Parser(prog=f"%watcher {name}", add_help=False, description=command.words[0].upper() + command.words[1:])
    command.declare(made)
    return made


def arguments_of(name: str, command: Command) -> str:
    """Return what may follow a word, as the list of all words shows it."""
    if command.arguments is not None:
        return command.arguments
    usage = " ".join(parser_of(name, command).format_usage().split())
    return usage.partition(f"%watcher {name}")[2].strip()


def parsed(parser: Parser, rest: str) -> Namespace:
    """Return the flags in a line; ``UsageError`` for what does not parse."""
    return parser.parse_args(split(parser.prog, rest))


def split(program: str, rest: str) -> list[str]:
    """Return the words of a line as a shell would; ``UsageError`` for an open quote."""
    try:
        return shlex.split(rest)
    except ValueError as error:
        raise UsageError(program, expected="balanced quotes", got=str(error)) from None


def asks_for_help(rest: str) -> bool:
    """Tell whether ``--help`` or ``-h`` stands among the words of a line, quotes aside."""
    return bool({"--help", "-h"} & set(rest.split()))


def help_page(parser: Parser) -> Page:
    """Return a parser's help as a panel."""
    text = parser.format_help()
    return Page(text, markup.root(markup.block(markup.escape_lines(text))))


def is_a(value: object, kinds: type | tuple[type, ...]) -> bool:
    """Tell whether a person's value is of a kind; one whose ``__class__`` raises is what its type says."""
    try:
        return isinstance(value, kinds)
    except Exception:  # noqa: BLE001 - the object's own code
        return issubclass(type(value), kinds)


def require_variable(session: Session, name: str, kinds: tuple[type, ...], field: str = "--name") -> None:
    """Raise ``UsageError`` if a name is no variable's, or holds something of the person's that is not of these kinds.

    What is of these kinds came from an earlier call and may be replaced.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise UsageError(field, expected="a variable's name", got=repr(name)[:80])
    present = session.shell.user_ns.get(name)
    if present is not None and not is_a(present, kinds):
        raise UsageError(
            field, expected="a name that is free", got=f"`{name}`, which holds your own {type(present).__name__}",
            remedy=f"Give another variable, for example {field} my_{name}.",
        )  # fmt: skip
