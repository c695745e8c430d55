"""Lists: the columns that terminals and panels have, with links, for a template to lay out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from watcherml.report import markup
from watcherml.report.listing import Column
from watcherml.ui.asking import address, item
from watcherml.ui.render import moment, sentence

Row = Mapping[str, Any]
Link = Callable[[Row], str]
_PROSE_COLUMNS = 150
_NAME_LIMIT = 64
_NOTHING = ("", "–")
# A window that is neither wide nor narrow does without columns that are this dispensable.
_SPARE = 4
_MOMENTS = ("Started", "Failed", "Prepared")


class Cell(NamedTuple):
    """One cell: its column's title, what it shows, where it leads, a second line, and how it is laid out."""

    title: str
    body: Markup
    link: str = ""
    below: str = ""
    kind: str = ""


class Table(NamedTuple):
    """Heads (title, layout) and rows of cells."""

    heads: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Cell]]


def table(
    columns: Sequence[Column], rows: Sequence[Row], links: Mapping[str, Link], *, leave_out: Sequence[str] = ()
) -> Table:
    """Return rows under their columns; ``links`` says by a column's title where its cells lead."""
    shown = [column for column in columns if column.title not in leave_out]
    body = [[_cell(column, row, links.get(column.title)) for column in shown] for row in rows]
    return Table([(column.title, _kind(column)) for column in shown], body)


def _cell(column: Column, row: Row, link: Link | None) -> Cell:
    text, kind = column.words(row), _kind(column)
    leads = link(row) if link is not None and text not in _NOTHING else ""
    if column.tone is not None and text:
        return Cell(column.title, Markup(markup.chip(text, column.tone(row))), leads, kind=kind)
    if column.title == "Run" and row.get("title"):
        # A person's name leads; the id, which never changes, stands below it.
        return Cell(column.title, Markup(markup.shown(row["title"], _NAME_LIMIT)), leads, str(row["run_id"]), "name")
    if column.is_id:
        # A list of runs says it in their status.
        below = "imported" if column.title == "Run" and row.get("origin") == "imported" and "status" not in row else ""
        return Cell(column.title, Markup(markup.mono(text, _NAME_LIMIT)), leads, below, kind)
    if text in _NOTHING:
        return Cell(column.title, Markup(markup.escape(text)), kind=f"{kind} blank")
    if column.title in _MOMENTS:
        return Cell(column.title, moment(text), leads, kind=kind)
    if column.is_prose:
        return Cell(column.title, Markup(sentence(text, _PROSE_COLUMNS)), leads, kind=kind)
    return Cell(column.title, Markup(markup.shown(text, _NAME_LIMIT)), leads, kind=kind)


def _kind(column: Column) -> str:
    if column.numeric:
        kind = "number"
    elif column.title in _MOMENTS:
        kind = "when"
    elif column.is_id or column.is_prose:
        kind = "id" if column.is_id else "prose"
    else:
        kind = "text" if column.tone is None else "mark"
    return f"{kind} spare" if column.spare >= _SPARE else kind


def run_link(row: Row) -> str:
    """Return the address of a row's run."""
    return item("runs", row["run_id"])


def failure_link(row: Row) -> str:
    """Return the address of a row's failure."""
    return item("failures", row["run_id"])


def campaign_link(row: Row) -> str:
    """Return the address of a row's campaign."""
    return item("campaigns", row["campaign_id"])


def source_link(row: Row) -> str:
    """Return the address of the run that a campaign is for."""
    return item("runs", row["source_run_id"])


def project_link(path: str) -> Link:
    """Return where a project's name leads: to the same list of this project alone."""
    return lambda row: address(path, project=str(row.get("project") or ""))
