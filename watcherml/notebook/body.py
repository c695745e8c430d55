"""The body of ``%%watcher recover`` as a module: what it lacks, which function trains, and the file it goes to.

Everything here reads source text; nothing is imported and nothing is run.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
import sys
from collections.abc import Sequence
from pathlib import Path

from watcherml.errors import InvalidEntrypoint, UsageError
from watcherml.platform import write_atomically

DEFAULT_FILE = "recovery_entrypoint.py"
MARK = "# Written by WatcherML from a notebook cell (%%watcher recover): change the cell, not this file."
WANTED = ("config", "max_steps")

_OF_IPYTHON = {"display", "get_ipython", "__IPYTHON__"}  # IPython puts these among the builtins of the kernel only
_OF_MODULES = {"__name__", "__file__", "__doc__", "__spec__", "__package__", "__loader__", "__builtins__",
               "__annotations__", "__debug__"}  # fmt: skip
_MOST_NAMED = 12

Cells = Sequence[tuple[int | None, str]]


def parse(source: str) -> ast.Module:
    """Return the body's syntax tree; ``InvalidEntrypoint`` names the line that is no plain Python."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        text = (source.splitlines() or [""])[(line or 1) - 1].strip() if line else ""
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
    top = symtable.symtable(source, "<body>", "exec")
    tables = _with_children(top)
    defined = {one.get_name() for one in top.get_symbols() if one.is_assigned() or one.is_imported()}
    for table in tables:
        defined |= {one.get_name() for one in table.get_symbols() if one.is_declared_global() and one.is_assigned()}
    known = defined | (set(dir(builtins)) - _OF_IPYTHON) | _OF_MODULES
    lines: dict[str, int] = {}
    for table in tables:
        for one in table.get_symbols():
            name = one.get_name()
            if one.is_referenced() and (table is top or one.is_global()) and name not in known:
                line = _first_read(tree, name, table.get_lineno())
                lines[name] = min(line, lines.get(name, line))
    return dict(sorted(lines.items(), key=lambda item: (item[1], item[0])))


def require_complete(source: str, cells: Cells) -> None:
    """Raise ``InvalidEntrypoint`` if the body reads names that it does not define.

    ``cells`` are the executed cells (execution count, source): the error says where a name came from in the notebook.
    """
    missing = undefined_names(source)
    if not missing:
        return
    named = ", ".join(f"{name} (line {line})" for name, line in list(missing.items())[:_MOST_NAMED])
    more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
    hints = [hint for name in list(missing)[:_MOST_NAMED] if (hint := origin(name, cells))]
    raise InvalidEntrypoint(
        "the body uses names that it does not define",
        expected="everything the training needs, because a fresh process has none of this notebook's names",
        got=named + more,
        remedy=" ".join(["Import or define them in this cell.", *hints]),
    )


def origin(name: str, cells: Cells) -> str:
    """Return where a name was bound last in the executed cells, as a sentence; empty if nowhere."""
    for count, source in reversed(cells):
        for node in reversed(_statements(source)):
            where = "An earlier cell" if count is None else f"Cell [{count}]"
            if isinstance(node, (ast.Import, ast.ImportFrom)) and name in _bound(node):
                return f"{where} has `{ast.unparse(node)[:120]}`; copy it."
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == name:
                kind = "class" if isinstance(node, ast.ClassDef) else "def"
                return f"{where} has `{kind} {name}`; copy it."
            if name in _assigned(node):
                return f"{where} makes the value {name}; make it inside the function, or put it into the config."
    return ""


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


def file_path(name: str, project_root: str, working_directory: str) -> Path:
    """Return where the body goes; ``UsageError`` for a name that cannot be imported or a folder that is not there."""
    stem = name[:-3] if name.endswith(".py") else ""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,80}", stem):
        raise UsageError("--file", expected=f"a module's file name such as {DEFAULT_FILE}", got=repr(name)[:120])
    if stem in sys.stdlib_module_names or stem == "watcherml":
        raise UsageError("--file", expected="a name that no other module has", got=repr(name))
    folder = Path(project_root).expanduser().resolve() / working_directory
    if not folder.is_dir():
        raise UsageError("--project-root", expected="an existing folder", got=str(folder)[:300])
    return folder / name


def write(path: Path, source: str) -> bool:
    """Write the body under our mark; False if the file holds exactly that already.

    Raises ``UsageError`` for a file that somebody else wrote: it is not overwritten.
    """
    text = f"{MARK}\n\n{source.strip()}\n"
    if path.exists():
        found = path.read_text("utf-8", "replace")
        if found == text:
            return False
        if not found.startswith(MARK.split(":", 1)[0]):
            raise UsageError(
                f"{path.name} exists and was not written by %%watcher recover",
                remedy="Give another name with --file, or use that file as it is with --entrypoint MODULE:FUNCTION.",
            )
    write_atomically(path, text.encode())
    return True


def _first_read(tree: ast.Module, name: str, scope_line: int) -> int:
    """Return the first line at or after the start of a scope that reads a name."""
    read = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    return min(
        (node.lineno for node in read if node.id == name and node.lineno >= scope_line), default=max(scope_line, 1)
    )


def _with_children(table: symtable.SymbolTable) -> list[symtable.SymbolTable]:
    return [table, *(inner for child in table.get_children() for inner in _with_children(child))]


def _parameters(node: ast.FunctionDef) -> set[str]:
    return {one.arg for one in (*node.args.args, *node.args.kwonlyargs)}


def _listed(functions: dict[str, set[str]]) -> str:
    return "one of " + ", ".join(list(functions)[:_MOST_NAMED]) if functions else "no function"


def _statements(source: str) -> list[ast.stmt]:
    # A magic or a shell command is one line of a cell; the rest of the cell still says where names come from.
    plain = re.sub(r"(?m)^[%!].*$", "", source)
    try:
        return ast.parse(plain).body
    except (SyntaxError, ValueError):
        return []


def _bound(node: ast.Import | ast.ImportFrom) -> set[str]:
    return {alias.asname or alias.name.partition(".")[0] for alias in node.names}


def _assigned(node: ast.stmt) -> set[str]:
    return (
        {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        else set()
    )
