"""Why an entrypoint's module cannot be imported, in the words of somebody who has to mend it."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from watcherml.errors import InvalidEntrypoint

_TEXT = 600
_TOP_LEVEL = "Keep training, and whatever needs data, arguments or a device, out of the module's top level."


def cannot_import(module: str, error: BaseException, project_root: Path) -> InvalidEntrypoint:
    """Return the refusal for what importing ``module`` raised: the error, its place in the project, the remedy."""
    place = _place(error, project_root.resolve())
    told = _exit_told(error) if isinstance(error, SystemExit) else _told(error)
    return InvalidEntrypoint(
        "entrypoint",
        expected=f"{module} to import in a fresh process",
        got=f"{told[:_TEXT]} (at {place})" if place else told[:_TEXT],
        remedy=_remedy(error, project_root),
    )


def where_instead(module: str, project_root: Path) -> str:
    """Return a sentence that names the folder of the project from which ``module`` can be imported; "" if none."""
    first = module.partition(".")[0]
    if first in sys.modules:
        return ""  # the package was found: what is missing is in it
    try:
        folders = sorted(one for one in project_root.iterdir() if one.is_dir() and not one.name.startswith("."))
    except OSError:
        return ""
    for folder in folders:
        if (folder / f"{first}.py").is_file() or any((folder / first).glob("*.py")):
            return f"{first} is in the folder {folder.name}; set working_directory to it (--working-directory)."
    return ""


def _told(error: BaseException) -> str:
    # A syntax error's place is told beside it, its source line is in the file.
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _exit_told(error: SystemExit) -> str:
    return f"sys.exit({'' if error.code is None else repr(error.code)}) while it was imported"


def _place(error: BaseException, root: Path) -> str:
    """Return the last line of the project's own code that the error went through, as ``file, line N``."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_relative(error.filename, root) or error.filename}, line {error.lineno or 1}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [(_relative(frame.filename, root), frame.lineno) for frame in frames]
    return next((f"{file}, line {line}" for file, line in reversed(own) if file), "")


def _relative(file: str, root: Path) -> str:
    try:
        path = Path(file).resolve()
    except OSError:
        return ""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else ""


def _remedy(error: BaseException, root: Path) -> str:
    if isinstance(error, SystemExit):
        return 'A trial has no command line: keep parse_args() and exits under `if __name__ == "__main__":`.'
    if isinstance(error, SyntaxError):
        return "Mend that line."
    if isinstance(error, ModuleNotFoundError) and error.name:
        return where_instead(error.name, root) or (
            f"Install it for {sys.executable}, take the import out, or name the folder that holds it: it was looked "
            f"for in {Path.cwd()}, the project root, and the installed packages."
        )
    if isinstance(error, FileNotFoundError):
        return f"Trials start in {Path.cwd()}; --working-directory names another folder. {_TOP_LEVEL}"
    if isinstance(error, ImportError):
        return "Mend that import."
    return _TOP_LEVEL
