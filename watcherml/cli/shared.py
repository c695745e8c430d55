"""What several commands do alike: open the store, offer formats, deliver a result, name the next command."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from watcherml.cli.console import Console
from watcherml.errors import InvalidValue
from watcherml.options import count as count
from watcherml.platform import expanded, is_file
from watcherml.store.storage import Storage

# Makes one face of a result; called with whether to use colour.
Face = Callable[[bool], str]


def storage_of(values: argparse.Namespace) -> Storage:
    """Return the store that the command line names; nothing is created."""
    return Storage(values.data_dir)


def add_format(parser: argparse.ArgumentParser, *more: str, output: bool = True) -> None:
    """Add ``--format`` (text, json and what the command has beyond) and ``--output``."""
    parser.add_argument("--format", choices=("text", "json", *more), default="text", help="default: %(default)s")
    if output:
        parser.add_argument("--output", metavar="FILE", help="write the result to a file")


def deliver(values: argparse.Namespace, console: Console, faces: Mapping[str, Face]) -> None:
    """Write the face that ``--format`` chose to standard output or to ``--output``."""
    target = getattr(values, "output", None)
    if target is None:
        console.out(faces[values.format](console.color))
        return
    from watcherml.report import plain

    before = plain.fit(None)  # a file has no columns
    text = faces[values.format](False)
    plain.fit(before)
    write_file(target, text, "--output")
    console.say(f"Wrote {target}.")


def as_json(document: Mapping[str, Any], *, one_line: bool = False) -> Face:
    """Return the JSON face of a document; on one line where other lines of JSON came before it."""
    return lambda _color: json.dumps(document, indent=None if one_line else 2, allow_nan=False) + "\n"


def write_file(target: str, text: str, flag: str) -> None:
    """Write a file whole or not at all; ``InvalidValue`` naming the flag if the system refuses."""
    from watcherml.platform import write_atomically  # few commands come here, all of them start here

    path = expanded(target)
    try:
        if path.exists() and not path.is_file():
            # A pipe or /dev/stdout cannot be renamed over; a folder gives the system's own reason.
            path.write_text(text, "utf-8")
        else:
            write_atomically(path, text.encode("utf-8"))
    except OSError as error:
        raise InvalidValue(flag, expected="a file that can be written", got=f"{target}: {error.strerror}") from None


def refuse_other_file(target: str | None, flag: str) -> None:
    """Raise ``InvalidValue`` where a plan would take the place of something that is neither a sealed plan nor empty."""
    path = None if target is None else expanded(target)
    # Below a folder of somebody else writing tells what is wrong.
    if path is None or not is_file(path) or not path.stat().st_size or _is_plan(path):
        return
    raise InvalidValue(
        flag,
        expected="a name that is free, or an earlier plan to replace",
        got=f"{target}, which exists and is no plan",
        remedy="Nothing was prepared. Choose another name.",
    )


def _is_plan(path: Path) -> bool:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("kind") == "recovery-plan"


def command_line(values: argparse.Namespace, *words: str) -> str:
    """Return a command that continues here: same program, same store, quoted for a shell."""
    where = ["--data-dir", values.data_dir] if values.data_dir else []
    return " ".join(map(_quoted, [*program(), *where, *words]))


def _quoted(word: str) -> str:
    """Return a word as a shell reads it back; one that would move the cursor in the spelling ``$'\\x1b'``."""
    import shlex

    if word.isprintable():
        return shlex.quote(word)
    spelled = {"\\": "\\\\", "'": "\\'"}
    hidden = ("".join(f"\\x{byte:02x}" for byte in os.fsencode(one)) for one in word)
    shown = (spelled.get(one, one) if one.isprintable() else code for one, code in zip(word, hidden, strict=True))
    return f"$'{''.join(shown)}'"


def program() -> Sequence[str]:
    """Return how this program was called: by its name where a shell finds it, else through Python."""
    import shutil

    called = Path(sys.argv[0]).stem
    if called in ("watcher", "watcherml"):
        return [called] if shutil.which(called) else [sys.argv[0]]
    found = shutil.which("python")
    same = found is not None and Path(found).samefile(sys.executable)
    return ["python" if same else sys.executable, "-m", "watcherml"]
