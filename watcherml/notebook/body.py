"""The body of a cell magic as a module: what it lacks, which function trains, and the file it goes to.

Everything here reads source text; nothing is imported and nothing is run.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import hashlib
import importlib.util
import keyword
import re
import stat
import symtable
import sys
from collections.abc import Iterator
from pathlib import Path

from watcherml.errors import InvalidEntrypoint, UsageError
from watcherml.platform import expanded, is_folder, write_atomically

DEFAULT_FILE = "recovery_entrypoint.py"
_MARK = "# Written by WatcherML from a notebook cell"
WANTED = ("config", "max_steps")

_OF_IPYTHON = {"display", "get_ipython", "__IPYTHON__"}  # IPython puts these among the builtins of the kernel only
_OF_MODULES = {"__name__", "__file__", "__doc__", "__spec__", "__package__", "__loader__", "__builtins__",
               "__annotations__", "__debug__"}  # fmt: skip
# Python and its test runner import files of these names without being asked.
_READ_AT_START = frozenset({"watcherml", "sitecustomize", "usercustomize", "conftest"})
_MOST_NAMED = 12


# What reading source text raises that is no Python, or nested deeper than the parser goes.
NO_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)


def lines_of(source: str) -> list[str]:
    """Return the lines of a source as Python counts them: a form feed, for example, ends none."""
    return re.split(r"\r\n|\r|\n", source)


def parse(source: str) -> ast.Module:
    """Return the body's syntax tree; ``InvalidEntrypoint`` names the line that is no plain Python."""
    try:
        return ast.parse(source)
    except (RecursionError, MemoryError):
        raise InvalidEntrypoint(
            "the body", expected="plain Python: it becomes a file that fresh processes import",
            got="an expression that is nested too deeply for Python to read",
        ) from None  # fmt: skip
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        text = lines_of(source)[(line or 1) - 1].strip() if line else ""
        magic = text.startswith(("%", "!"))
        raise InvalidEntrypoint(
            f"the body, line {line}" if line else "the body",
            expected="plain Python: it becomes a file that fresh processes import",
            got=repr(text)[:120] if text else str(error),
            remedy="Leave magics and shell commands outside." if magic else str(getattr(error, "msg", error)),
        ) from None


def undefined_names(source: str) -> dict[str, int]:
    """Return the names that a module reads and never defines, each with the first line that reads it."""
    tree = parse(source)
    if any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(tree)):
        return {}  # a star may bring any name
    top = _table(source)
    tables = _with_children(top)
    known = defined_names(source) | (set(dir(builtins)) - _OF_IPYTHON) | _OF_MODULES
    lines: dict[str, int] = {}
    for table in tables:
        for one in table.get_symbols():
            name = one.get_name()
            if one.is_referenced() and (table is top or one.is_global()) and name not in known:
                line = _first_read(tree, name, table.get_lineno())
                lines[name] = min(line, lines.get(name, line))
    return dict(sorted(lines.items(), key=lambda item: (item[1], item[0])))


def defined_names(source: str) -> set[str]:
    """Return the names that a module defines, its functions' ``global`` names included."""
    top = _table(source)
    defined = {one.get_name() for one in top.get_symbols() if one.is_assigned() or one.is_imported()}
    for table in _with_children(top):
        defined |= {one.get_name() for one in table.get_symbols() if one.is_declared_global() and one.is_assigned()}
    return defined


def read_at_once(source: str) -> set[str]:
    """Return the names that are read when a module is executed: decorators, bases, defaults, the bodies of classes."""
    at_once, found = [_table(source)], set()
    while at_once:
        table = at_once.pop()
        found |= {one.get_name() for one in table.get_symbols() if one.is_referenced()}
        at_once += [child for child in table.get_children() if child.get_type() == "class"]
    return found


def training_function(source: str, wanted: str | None) -> str:
    """Return the function that trains: the named one, else the only one with ``config`` and ``max_steps``.

    Raises ``InvalidEntrypoint`` naming the candidates where there is none or more than one.
    """
    functions = {node.name: _parameters(node) for node in parse(source).body if isinstance(node, ast.FunctionDef)}
    if wanted is not None:
        if wanted not in functions:
            raise InvalidEntrypoint("--function", expected=_listed(functions), got=repr(wanted)[:80])
        return wanted
    fitting = [name for name, names in functions.items() if set(WANTED) <= names]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise InvalidEntrypoint(
            "the body", expected="one function with the parameters config and max_steps", got=", ".join(fitting),
            remedy=f"Name the one that trains: --function {fitting[-1]}.",
        )  # fmt: skip
    raise InvalidEntrypoint(
        "the body",
        expected="a top-level function with the parameters config and max_steps",
        got=_listed(functions),
        remedy="def train(config, max_steps=None): ... returns its metrics, with steps_completed among them.",
    )


def file_path(name: str, project_root: str, working_directory: str, field: str = "--file") -> Path:
    """Return where the body goes; ``UsageError`` for a name that cannot be imported or a folder that is not there."""
    stem = name[:-3] if name.endswith(".py") else ""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,80}", stem):
        raise UsageError(field, expected=f"a module's file name such as {DEFAULT_FILE}", got=repr(name)[:120])
    if stem in sys.stdlib_module_names or stem in _READ_AT_START or keyword.iskeyword(stem) or _dunder(stem):
        raise UsageError(field, expected="a name that no other module has", got=repr(name))
    folder = expanded(project_root).resolve() / working_directory
    if not is_folder(folder):
        raise UsageError("--project-root", expected="an existing folder that can be entered", got=str(folder)[:300])
    if (place := _module_elsewhere(stem, folder)) is not None:
        # Trials find the project's folder first, so that every import of that module would get this file.
        raise UsageError(field, expected="a name that no other module has", got=f"{name!r}, which would hide {place}")
    return folder / name


def _dunder(stem: str) -> bool:
    return stem.startswith("__") and stem.endswith("__")


def _module_elsewhere(stem: str, folder: Path) -> str | None:
    """Return what a name means outside a folder, None if nothing; a name without a dot is found without importing."""
    try:
        found = importlib.util.find_spec(stem)
    except (ImportError, ValueError, AttributeError):  # a module that is there, without a spec that says from where
        return None
    if found is None or found.origin is None or not found.has_location:
        return None
    place = Path(found.origin)
    return None if _is_inside(place, folder) or _is_inside(place, Path.cwd()) else str(place)[:300]


def _is_inside(place: Path, folder: Path) -> bool:
    """Tell whether a module is one of a folder: the person's own, which is dealt with when it is written."""
    return folder.resolve() in (place.parent.resolve(), place.parent.parent.resolve())


@contextlib.contextmanager
def written(path: Path, source: str) -> Iterator[bool]:
    """Write the body under our mark; if the block fails, the file is again what it was before.

    Yields whether anything had to be written. Raises ``UsageError`` for a file that somebody else wrote, or changed
    after we wrote it: it is not overwritten, neither now nor when the block fails; and for what cannot be written.
    """
    text = marked(source)
    before = present(path)
    if before == text.encode():
        yield False
        return
    if before is not None and not _is_ours(before.decode("utf-8", "replace")):
        changed = before.startswith(_MARK.encode())
        raise UsageError(
            f"{path.name} was changed after a notebook cell wrote it"
            if changed
            else f"{path.name} exists and was not written from a notebook cell",
            remedy="Give another file name (--file NAME.py for %%watcher recover), or use that file as it is with"
            " --entrypoint MODULE:FUNCTION.",
        )
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise _unusable(path, error) from None
    try:
        yield True
    except BaseException:
        with contextlib.suppress(OSError, UsageError):
            if present(path) != text.encode():
                pass  # another notebook, or the person, has written it meanwhile
            elif before is None:
                path.unlink()
            else:
                write_atomically(path, before)
        raise


def present(path: Path) -> bytes | None:
    """Return what is in the file that a body would go to, None if there is none.

    Raises ``UsageError`` for what is no plain file, a link included: writing would take the person's link away.
    """
    try:
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode):
            return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error) from None
    kind = "a link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "no plain file"
    raise UsageError(path.name, expected="a plain file, or none yet", got=kind, remedy="Give another file name.")


def _unusable(path: Path, error: OSError) -> UsageError:
    return UsageError(
        str(path)[:300], expected="a file that can be read and written", got=error.strerror or type(error).__name__,
        remedy="Nothing was changed. Make room or allow it, or give another --project-root.",
    )  # fmt: skip


def marked(source: str) -> str:
    """Return the body as its file holds it: under a line that says where it comes from and what it was."""
    text = f"\n{source.strip()}\n"
    return f"{_MARK} ({_short_digest(text)}): change the cell, not this file.\n{text}"


def _is_ours(text: str) -> bool:
    """Tell whether a file is as a cell has written it; what a person changed in it is not to be lost."""
    first, _, rest = text.partition("\n")
    if not first.startswith(_MARK):
        return False
    return f"({_short_digest(rest)})" in first


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _first_read(tree: ast.Module, name: str, scope_line: int) -> int:
    """Return the first line at or after the start of a scope that reads a name."""
    read = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    return min(
        (node.lineno for node in read if node.id == name and node.lineno >= scope_line), default=max(scope_line, 1)
    )


def _table(source: str) -> symtable.SymbolTable:
    parse(source)  # says what is wrong with it
    try:
        return symtable.symtable(source, "<body>", "exec")
    except NO_PYTHON as error:
        raise InvalidEntrypoint("the body", expected="plain Python that compiles", got=str(error)[:300]) from None


def _with_children(table: symtable.SymbolTable) -> list[symtable.SymbolTable]:
    return [table, *(inner for child in table.get_children() for inner in _with_children(child))]


def _parameters(node: ast.FunctionDef) -> set[str]:
    return {one.arg for one in (*node.args.args, *node.args.kwonlyargs)}


def _listed(functions: dict[str, set[str]]) -> str:
    return "one of " + ", ".join(list(functions)[:_MOST_NAMED]) if functions else "no function"
