"""Where the executed cells of a notebook bind a name, read from their source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

from watcherml.notebook import body

Kind = Literal["import", "function", "class", "data", "several", "deleted", "star", "unexecuted"]

# Cell magics that run their body in the notebook's namespace; the body of any other one defines nothing here.
_RUN_THEIR_BODY = re.compile(r"%%(time|capture|prun|watcher[ \t]+run)(?![\w-])")
_MOST_TEXT = 100
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_OWN_SCOPE = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Ran(NamedTuple):
    """An executed cell and its execution count.

    ``until`` is the line at which it failed: None if it ran to its end, 0 if nothing ran or nobody knows how much.
    """

    number: int | None
    source: str
    until: int | None = None


@dataclass(frozen=True)
class Binding:
    """One statement that binds a name. ``line`` counts in the cell as it was typed.

    ``at`` orders statements as they were executed: the number of the cell, and the line as IPython counts.
    ``code`` is what would be copied; empty for what is not. ``text`` is the statement's first line, for a person.
    """

    name: str
    kind: Kind
    count: int | None
    line: int
    text: str
    code: str = ""
    at: tuple[int, int] = (0, 0)

    @property
    def title(self) -> str:
        """What it is, as a person would write it: ``def f``, ``class A``, an import."""
        words = {"function": "def ", "class": "class "}
        return f"`{words.get(self.kind, '')}{self.name}`"


def where(count: int | None, *, capital: bool = False) -> str:
    """Return what a cell is called in a sentence."""
    words = "an earlier cell" if count is None else f"cell [{count}]"
    return words[0].upper() + words[1:] if capital else words


def found(name: str, cells: Sequence[Ran]) -> Binding | None:
    """Return the statement that bound a name last, None if there is none.

    A definition behind the line at which its cell failed was not executed and counts only where there is no other.
    """
    unexecuted = star = None
    modules: list[Binding] = []  # `import a.b` and `import a.c` both bind a, and neither takes the other's away
    for number in range(len(cells) - 1, -1, -1):
        for one in reversed(bindings(cells[number].source)):
            if one.name not in (name, "*"):
                continue
            one = replace(one, count=cells[number].number, at=(number, one.at[1]))
            if cells[number].until is not None and one.at[1] >= (cells[number].until or 0):
                unexecuted = unexecuted or (replace(one, kind="unexecuted") if one.name == name else None)
            elif one.name == "*":
                star = star or one
            elif one.kind == "import" and one.code.startswith(f"import {name}"):
                modules.append(one)
            elif not modules:
                return one
            else:
                return _together(modules)
    return _together(modules) or unexecuted or star


def _together(modules: list[Binding]) -> Binding | None:
    code = "\n".join(dict.fromkeys(one.code for one in reversed(modules)))
    return replace(modules[0], code=code) if modules else None


@lru_cache(maxsize=2_000)  # as many as a session keeps
def bindings(source: str) -> tuple[Binding, ...]:
    """Return what a cell binds at its top level, in order; nothing for a cell that is no Python."""
    text, lead = plain(source), _empty_lines(source)  # IPython leaves them out and counts from the line below
    try:
        tree = ast.parse(text)
        lines = body.lines_of(text)
        return tuple(one for node in tree.body for one in _of(node, lines, lead))
    except body.NO_PYTHON:
        return ()


def plain(source: str) -> str:
    """Return a cell as the Python that was executed, empty for the body of a magic that is not run here."""
    lines = source.splitlines(keepends=True)[_empty_lines(source) :]
    first = 0
    while first < len(lines) and lines[first].startswith("%%"):
        if not _RUN_THEIR_BODY.match(lines[first]):
            return ""
        lines[first] = "#\n"  # not left out, so that lines keep their numbers
        first += 1
    text = "".join(lines)
    try:
        from IPython.core.inputtransformer2 import TransformerManager

        return str(TransformerManager().transform_cell(text))  # type: ignore[no-untyped-call]
    except Exception:  # noqa: BLE001 - a cell that IPython cannot read is no Python either
        return re.sub(r"(?m)^[ \t]*[%!].*$", "", text)


def _empty_lines(source: str) -> int:
    """Return how many lines are empty above the first one that is not."""
    lines = source.splitlines()
    return next((number for number, line in enumerate(lines) if line.strip()), len(lines))


def _of(node: ast.stmt, lines: list[str], lead: int) -> Iterator[Binding]:
    start = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
    text = lines[node.lineno - 1].strip()[:_MOST_TEXT]

    def made(name: str, kind: Kind, code: str = "") -> Binding:
        return Binding(name, kind, None, start + lead, text, code, (0, start))

    if isinstance(node, _SCOPES):
        code = "\n".join(lines[start - 1 : node.end_lineno])
        yield made(node.name, "class" if isinstance(node, ast.ClassDef) else "function", code)
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            if isinstance(node, ast.ImportFrom):
                one: ast.stmt = ast.ImportFrom(node.module, [alias], node.level)
            else:
                one = ast.Import([alias])
            yield made(name, "star" if name == "*" else "import", ast.unparse(one))
    elif isinstance(node, ast.Delete):
        for name in _stored(node):
            yield made(name, "deleted")
    else:
        # Under an `if` or in a `try` nobody knows from the text which of the definitions was executed.
        compound = {name for inner in ast.walk(node) for name in _defined(inner)} if hasattr(node, "body") else set()
        for name in dict.fromkeys(_stored(node)):
            yield made(name, "several" if name in compound else "data")


def _defined(node: ast.AST) -> Iterator[str]:
    if isinstance(node, _SCOPES):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)


def _stored(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement binds in the scope that it stands in."""
    if isinstance(node, _OWN_SCOPE):
        return
    yield from _defined(node)
    if isinstance(node, _SCOPES):
        return
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    name = getattr(node, "name", None) if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) else None
    if isinstance(name, str):
        yield name
    for child in ast.iter_child_nodes(node):
        yield from _stored(child)
