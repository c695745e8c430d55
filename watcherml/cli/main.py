"""``watcher``: finds the command, runs it, and turns errors into a message and an exit code.

Exit codes: 0 success, 1 an error, 2 wrong usage, 3 unknown run or campaign, 4 a campaign without a verified
recovery, 5 declined, 130 interrupted. With ``--format json`` an error is one JSON line on standard error.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from watcherml import __version__
from watcherml.cli.commands import COMMANDS, load
from watcherml.cli.console import Console, json_line, leave_quietly, write_out
from watcherml.errors import UsageError, WatcherError
from watcherml.options import Parser, RawHelp

PROGRAM = "watcher"
DEBUG = "WATCHERML_DEBUG"
INTERRUPTED = 130
# A start makes thousands of objects that stay; at 700, as Python has it, they are looked through again and again.
_GARBAGE_THRESHOLD = 20_000
_DESCRIPTION = "Records ML runs, says why one failed, and recovers an out-of-memory failure that a verifier confirms."
_EXIT_CODES = """\
exit codes:
  0  success              3  unknown run or campaign
  1  an error             4  the campaign ran without a verified recovery
  2  wrong usage          5  declined, or nobody could be asked
                        130  interrupted"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        gc.set_threshold(_GARBAGE_THRESHOLD)
    try:
        return _run(words)
    except SystemExit as leaving:  # argparse has printed a help text or the version
        return leaving.code if isinstance(leaving.code, int) else 0
    except WatcherError as error:
        _complain(words, error.as_data(), error.exit_code)
        return error.exit_code
    except KeyboardInterrupt:
        _complain(words, {"code": "interrupted", "message": "Interrupted."}, INTERRUPTED)
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - a person gets a sentence, whatever went wrong
        hint = f"This should not happen. {DEBUG}=1 shows where it came from."
        if isinstance(error, ImportError) and "psutil" in str(error):  # the one package that everything needs
            hint = 'Install it again: pip install --force-reinstall "psutil>=5.9"'
        message = f"unexpected {type(error).__name__}: {error}"
        _complain(words, {"code": "unexpected", "message": message, "remedy": hint}, 1)
        return 1
    finally:
        leave_quietly(sys.stdout)
        leave_quietly(sys.stderr)
        if argv is None:
            gc.freeze()  # or Python looks through everything once more, just before it ends


def _run(words: list[str]) -> int:
    front, name, rest = _split(words)
    if name is None:
        root_parser().parse_args(front)
        raise UsageError("no command", expected="one of " + ", ".join(COMMANDS), remedy=_LIST)
    if name not in COMMANDS:
        raise UsageError(f"unknown command {name[:60]!r}", remedy=_nearest(name))
    values = command_parser(name).parse_args([*front, *rest])
    console = Console(quiet=values.quiet, no_color=values.no_color, json=values.format == "json")
    with console.fitting(), _damage_told(console):
        return load(name).run(values, console)


@contextmanager
def _damage_told(console: Console) -> Iterator[None]:
    """Tell at the end of a command each damaged row that its lists left out, as a line of this program."""
    from watcherml.store.sound import hearing

    with hearing() as left_out:
        try:
            yield
        finally:
            for one in left_out:
                from watcherml.report.safe import one_line

                text = f"{PROGRAM}: Left out of the list: {one_line(one, 2_000)}"
                console.warn(console.folded(text, "  "))


def root_parser() -> Parser:
    """Return the parser of words without a command; its help lists the commands."""
    width = max(map(len, COMMANDS))
    listed = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items())
    parser = _Parser(
        prog=PROGRAM,
        usage=f"{PROGRAM} [GLOBAL_OPTIONS] COMMAND [COMMAND_OPTIONS]",
        description=_DESCRIPTION,
        epilog=f"commands:\n{listed}\n\n`{PROGRAM} COMMAND --help` explains one.\n\n{_EXIT_CODES}",
        formatter_class=RawHelp,
    )
    _add_globals(parser)
    parser.add_argument_group("every command").add_argument(
        "--format", metavar="text|json", help="how the result is written; some commands have more"
    )
    return parser


def command_parser(name: str) -> Parser:
    """Return the parser of one command's words and the global options, whichever side of it they stand on."""
    parser = _CommandParser(prog=f"{PROGRAM} {name}", description=f"{COMMANDS[name]}.")
    parser.command = name
    load(name).add_arguments(parser)
    _add_globals(parser)
    return parser


class _Parser(Parser):
    """A parser whose help and version are written as everything else is: argparse says nothing of a full disk."""

    def _print_message(self, message: str, file: Any = None) -> None:
        write_out(message)


class _CommandParser(_Parser):
    """A command's parser, whose help ends with the keys of its JSON."""

    command = ""

    def format_help(self) -> str:
        """Return the help; the keys are loaded for it alone."""
        import textwrap

        from watcherml.cli.json_keys import KEYS
        from watcherml.options import columns

        told = textwrap.fill(f"with --format json: {KEYS[self.command]}", columns() - 2, break_on_hyphens=False)
        return f"{super().format_help().rstrip()}\n\n{told}\n"


def _add_globals(parser: Parser) -> None:
    group = parser.add_argument_group("global options")
    group.add_argument("--data-dir", metavar="PATH", help="the store (default: WATCHERML_DIR, else ./.watcherml)")
    group.add_argument("--no-color", action="store_true", help="no ANSI colours")
    group.add_argument("--quiet", action="store_true", help="results only, no progress")
    group.add_argument("--version", action="version", version=f"watcherml {__version__}", help="show the version")


_LIST = f"`{PROGRAM} --help` lists them."


def _split(words: list[str]) -> tuple[list[str], str | None, list[str]]:
    """Return the options before the command, the command, and what follows it."""
    index = 0
    while index < len(words) and words[index].startswith("-"):
        index += 2 if _takes_a_value(words[index], words[index + 1 : index + 2]) else 1
    return words[:index], words[index] if index < len(words) else None, words[index + 1 :]


def _takes_a_value(flag: str, following: list[str]) -> bool:
    """Whether the word after this flag belongs to it."""
    if flag in ("--data-dir", "--format"):
        return True
    if "=" in flag or flag in ("-h", "--help", "--version", "--no-color", "--quiet"):
        return False
    # A command's own flag before the command: only now is it worth reading the flags of all of them.
    with_a_value, switches = _flags()
    return flag in with_a_value and not (flag in switches and following[:1] and following[0] in COMMANDS)


@cache
def _flags() -> tuple[set[str], set[str]]:
    """Return the flags that take a value in some command, and those that take none in some."""
    everywhere = [action for name in COMMANDS for action in command_parser(name)._actions]
    with_a_value = {flag for action in everywhere if action.nargs != 0 for flag in action.option_strings}
    return with_a_value, {flag for action in everywhere if action.nargs == 0 for flag in action.option_strings}


def _nearest(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    return f"Did you mean `{PROGRAM} {near[0]}`? {_LIST}" if near else _LIST


def _complain(words: Sequence[str], error: dict[str, str], exit_code: int) -> None:
    if os.environ.get(DEBUG) == "1":
        import traceback

        traceback.print_exc()
    console = Console()
    if _wants_json(words):
        console.warn(json_line({"kind": "error", "exit_code": exit_code, "error": error}))
        return
    from watcherml.report.safe import many_lines, one_line

    console.warn(console.folded(f"{PROGRAM}: {one_line(error['message'], 2_000)}", "  "))
    for key, label in (("expected", "expected"), ("got", "got"), ("remedy", "next")):
        if error.get(key):
            first, *more = many_lines(error[key], 4_000).rstrip().split("\n")
            for line in (f"  {label}: {first}", *(f"    {line}" for line in more)):
                console.warn(console.folded(line, "    "))


def _wants_json(words: Sequence[str]) -> bool:
    # Read from the words themselves: the error may be that they do not parse.
    return "--format=json" in words or ("--format", "json") in itertools.pairwise(words)
