"""Names that a cell's body lacks: which imports, defs and classes of earlier cells could be copied above it.

Reads source text only. The last definition wins, as it does in the kernel; what a copied definition reads itself is
looked up in the same way. A value is never copied: a fresh process has to make it.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field

from watcherml.errors import InvalidEntrypoint
from watcherml.notebook import body
from watcherml.notebook.bindings import Binding, Ran, found, where

_MOST_NAMED = 12
_OF_IPYTHON = frozenset({"display", "get_ipython"})


@dataclass(frozen=True)
class Lack:
    """A name that cannot be copied: who reads it, and in one sentence what to do about it."""

    name: str
    reader: str
    remedy: str


@dataclass(frozen=True)
class Completed:
    """A body with what was copied above it; ``copied`` is empty where the body has everything.

    ``source`` is the whole module, ``code`` the part that was added, ``cautions`` what a person should know of it.
    """

    source: str
    code: str = ""
    copied: tuple[Binding, ...] = ()
    cautions: tuple[str, ...] = ()


@dataclass
class _Search:
    cells: Sequence[Ran]
    present: Container[str] | None
    copies: dict[str, Binding] = field(default_factory=dict)
    lacks: list[Lack] = field(default_factory=list)

    def run(self, source: str) -> None:
        known = body.defined_names(source)
        asked: deque[tuple[str, str]] = deque(
            (name, f"line {line}") for name, line in body.undefined_names(source).items()
        )
        seen = set(known)
        while asked:
            name, reader = asked.popleft()
            if name in seen:
                continue
            seen.add(name)
            one = found(name, self.cells)
            remedy = self._why_not(name, one)
            if remedy or one is None:
                self.lacks.append(Lack(name, reader, remedy))
                continue
            self.copies[name] = one
            asked.extend((more, f"{one.title}, line {one.line + line - 1} of {where(one.count)}")
                         for more, line in body.undefined_names(one.code).items())  # fmt: skip

    def _why_not(self, name: str, one: Binding | None) -> str:
        """Return why a name is not copied, with the remedy; empty if it can be."""
        if name in _OF_IPYTHON:
            return f"{name} is there in a notebook only: leave it out."
        if one is None:
            return f"No cell of this session defines {name}."
        place = f"{where(one.count, capital=True)}, line {one.line},"
        if one.kind in _REMEDIES:
            return _REMEDIES[one.kind].format(name=name, place=place, text=one.text, cell=where(one.count))
        if self.present is not None and name not in self.present:
            return f"{place} has `{one.text}`, but {name} is not there any more: copy it into this cell."
        if "[redacted" in one.code:
            return f"{place} has `{one.text}` with a value that looks like a secret: write it anew in this cell."
        return ""


_REMEDIES = {
    "data": "{place} makes the value {name} (`{text}`): make it inside the function, or put it into the config.",
    "several": "{place} binds {name} in more than one way (`{text}`): copy that statement into this cell.",
    "deleted": "{place} deletes {name}.",
    "star": "{place} has `{text}`, which may bring {name}: import {name} by its name in this cell.",
    "unexecuted": "{place} has `{text}`, but the cell ended before it was executed: copy it into this cell.",
}


def complete(source: str, cells: Sequence[Ran], present: Container[str] | None = None) -> Completed:
    """Return the body with the definitions that it lacks; ``present`` are the names that the kernel has now.

    Raises ``InvalidEntrypoint`` naming each name that cannot be copied, who reads it, where it comes from, and what to
    do instead.
    """
    search = _Search(cells, present)
    search.run(source)
    if search.lacks:
        raise _refusal(search)
    if not search.copies:
        return Completed(source)
    ordered = list(_ordered(search.copies))
    code = "\n\n".join(_block(ordered))
    return Completed(_above(source, code), code, tuple(ordered), tuple(_cautions(ordered)))


def _refusal(search: _Search) -> InvalidEntrypoint:
    shown = search.lacks[:_MOST_NAMED]
    more = f" and {len(search.lacks) - len(shown)} more" if len(search.lacks) > len(shown) else ""
    remedies = [one.remedy for one in shown]
    if search.copies:
        remedies.append(f"{', '.join(list(search.copies)[:_MOST_NAMED])} can be copied from earlier cells after that.")
    return InvalidEntrypoint(
        "the body uses names that it does not define",
        expected="everything the training needs, because a fresh process has none of this notebook's names",
        got=", ".join(f"{one.name} ({one.reader})" for one in shown) + more,
        remedy=" ".join(remedies),
    )


def _ordered(copies: dict[str, Binding]) -> Iterator[Binding]:
    """Yield imports first, then definitions as they were executed, each after what it needs when it is executed."""
    given: set[str] = set()
    by_place = sorted(copies, key=lambda name: (copies[name].kind != "import", copies[name].at, name))

    def visit(name: str) -> Iterator[Binding]:
        if name in given:
            return
        given.add(name)
        for needed in sorted(body.read_at_once(copies[name].code) & set(copies)):
            yield from visit(needed)
        yield copies[name]

    for name in by_place:
        yield from visit(name)


def _block(ordered: list[Binding]) -> Iterator[str]:
    imports = list(dict.fromkeys(line for one in ordered if one.kind == "import" for line in one.code.splitlines()))
    if imports:
        yield "\n".join(imports)
    for one in ordered:
        if one.kind != "import":
            yield f"# From {where(one.count)}.\n{one.code}"


def _cautions(ordered: list[Binding]) -> Iterator[str]:
    known = {one.name: one for one in ordered}
    for one in ordered:
        for name in sorted(body.read_at_once(one.code) & set(known)):
            if known[name].kind != "import" and known[name].at > one.at:
                yield (
                    f"{where(known[name].count, capital=True)} defines {name} again after {where(one.count)} has used"
                    f" it for {one.name}; the copy uses the later one."
                )


def _above(source: str, code: str) -> str:
    """Return the body with code before its first statement, but after what has to come first in a file."""
    line = 0
    for number, node in enumerate(body.parse(source).body):
        docstring = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not docstring and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        line = node.end_lineno or line
    lines = body.lines_of(source)
    head, rest = "\n".join(lines[:line]).strip("\n"), "\n".join(lines[line:]).strip("\n")
    return "\n\n\n".join(part for part in (head, code, rest) if part) + "\n"
