"""The text face of a list: a table that fits the terminal, and for an empty list the reason why it is empty."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from watcherml.cli.console import Console
from watcherml.store.absent import where_else

if TYPE_CHECKING:
    from watcherml.cli.shared import Face
    from watcherml.store.storage import Storage

_MOST_PROJECTS = 10
_FILTERS = ("project", "status", "verified", "unresolved")


def list_face(
    values: argparse.Namespace,
    console: Console,
    storage: Storage,
    rows: Sequence[Any],
    table: Callable[..., str],
    nouns: str,
) -> Face:
    """Return the text face of ``rows``; ``nouns`` is what they are, in the plural."""
    if not rows:
        return lambda _color: why_empty(values, storage, nouns)
    return lambda color: table(rows, color=color, columns=console.room if values.output is None else None)


def why_empty(values: argparse.Namespace, storage: Storage, nouns: str) -> str:
    """Return why a list has no rows: no store, no such project, nothing that matches, or nothing at all yet."""
    from watcherml.report import plain

    if not storage.exists:
        told = f"No {nouns}: there is no store in {storage.path}."
        return plain.finish([*plain.wrap(told), *plain.wrap(where_else(storage.path))])
    unknown = None if values.project is None else unknown_project(storage, values.project)
    if unknown is not None:
        return plain.finish(plain.wrap(f"No {nouns}: {unknown}"))
    given = [flag for name in _FILTERS if (flag := _flag(name, getattr(values, name, None)))]
    if given:
        return plain.finish(plain.wrap(f"No {nouns} in {storage.path} match {' '.join(given)}."))
    return plain.finish(plain.wrap(f"No {nouns} are recorded in {storage.path} yet."))


def unknown_project(storage: Storage, name: str) -> str | None:
    """Return that there is no such project, and which there are; None for one that has runs."""
    from watcherml.store.projects import project_names

    names = project_names(storage)
    if name in names:
        return None
    more = f" and {len(names) - _MOST_PROJECTS:,} more" if len(names) > _MOST_PROJECTS else ""
    there = f"Projects there: {', '.join(names[:_MOST_PROJECTS])}{more}." if names else "It has no runs yet."
    return f"{storage.path} has no project {name!r}. {there}"


def _flag(name: str, value: object) -> str:
    if value in (None, False):
        return ""
    return f"--{name}" if value is True else f"--{name} {value}"
