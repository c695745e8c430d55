"""Lists as plain aligned tables: runs, failures, campaigns, and the events of a campaign."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from watcherml.report import plain
from watcherml.report.listing import CAMPAIGNS, EVENT_NAMES, FAILURES, NAME, RUNS, Column
from watcherml.report.safe import compact, cut, one_line, shorten, width
from watcherml.report.units import format_time

_WHOLE_ID = 200  # characters, more than any id has: an id that is cut cannot be typed again
_LEAST_PROSE = 30  # columns that a sentence needs to say anything
_GOOD_PROSE = 45  # columns that it is left with before another column comes back


def runs_table(rows: Sequence[Mapping[str, Any]], *, color: bool = False, columns: int | None = None) -> str:
    """Return runs, one a line; rows of the view ``run_summary``. ``columns`` is what a line may take."""
    return _table(_named(RUNS, rows), rows, "No runs are recorded here yet.", color, columns)


def failures_table(rows: Sequence[Mapping[str, Any]], *, color: bool = False, columns: int | None = None) -> str:
    """Return failures, one a line; rows of the view ``failure_summary``. ``columns`` is what a line may take."""
    return _table(_named(FAILURES, rows), rows, "No failures are recorded here.", color, columns)


def campaigns_table(rows: Sequence[Mapping[str, Any]], *, color: bool = False, columns: int | None = None) -> str:
    """Return recovery campaigns, one a line; rows of the view ``campaign_summary``. ``columns`` as for runs."""
    return _table(CAMPAIGNS, rows, "No recovery campaigns are recorded here.", color, columns)


def events(rows: Sequence[Mapping[str, Any]], *, color: bool = False) -> str:
    """Return a campaign's events, one a line; rows hold ``seq``, ``at`` (seconds since 1970), ``type``, ``body``."""
    if not rows:
        return "No events are recorded here.\n"
    cells = [(str(row.get("seq", "")), format_time(row.get("at")), event_name(row)) for row in rows]
    titles, *heads = plain.columns(("No.", "When", "What"), cells, numeric=(0,))
    wide = max(map(width, heads)) + 2  # details are wrapped beside these columns
    lines = [plain.bold(f"{titles:<{wide}}Detail", color)]
    for head, row in zip(heads, rows, strict=True):
        detail = row.get("words") or _body(row.get("body"))
        first, *rest = plain.wrap(detail, " " * wide, " " * wide, 600)
        lines += [f"{head:<{wide}}{first.strip()}".rstrip(), *rest]
    return plain.finish(lines)


def event_name(row: Mapping[str, Any]) -> str:
    """Return an event's type in words."""
    kind = str(row.get("type") or "")
    return EVENT_NAMES.get(kind, one_line(kind.replace("_", " "), 40))


def _body(body: Any) -> str:
    if not isinstance(body, Mapping):
        return "" if body is None else compact(body, 90)
    # A sentence is written for people; the other keys are for programs.
    if body.get("sentence"):
        return one_line(body["sentence"], 120)
    return shorten("  ".join(f"{one_line(key, 40)}={_value(value)}" for key, value in body.items()), 120)


def _value(value: Any) -> str:
    return one_line(value, 60) if isinstance(value, str) else compact(value, 60)


def _table(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], empty: str, color: bool, room: int | None
) -> str:
    if not rows:
        return empty + "\n"
    cells = {column.title: [_cell(column, row) for row in rows] for column in columns}
    shown, left_out = list(columns), list[str]()
    if room is not None:
        shown = _fitting(columns, cells, room)
        # A column that says nothing is not missed.
        says = [one.title for one in columns if any(cell.strip("–") for cell in cells[one.title])]
        left_out = [title for title in says if title not in {one.title for one in shown}]
        if shown[-1].is_prose:
            others = _taken(shown[:-1], cells)
            limit = max(_LEAST_PROSE, room - others - 2)
            cells[shown[-1].title] = [cut(text, limit) for text in cells[shown[-1].title]]
    tones = [[column.tone(row) if column.tone else None for column in shown] for row in rows]
    numeric = [index for index, column in enumerate(shown) if column.numeric]
    lines = plain.columns(
        [column.title for column in shown],
        list(zip(*(cells[column.title] for column in shown), strict=True)),
        numeric=numeric, tones=tones, color=color,
    )  # fmt: skip
    if left_out:
        note = f"Left out at this width: {', '.join(left_out)}. `--format json` has everything."
        lines += [plain.paint(line, "quiet", color) for line in plain.wrap(note)]
    return plain.finish(lines)


def _named(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> Sequence[Column]:
    """Return the columns with the names that people gave beside the ids, where a row has one."""
    return (columns[0], NAME, *columns[1:]) if any(row.get("title") for row in rows) else columns


def _fitting(columns: Sequence[Column], cells: Mapping[str, Sequence[str]], room: int) -> list[Column]:
    """Return the columns that fit, in their order: the most dispensable go first, and what fits again comes back."""

    gone: list[Column] = []
    for column in sorted((one for one in reversed(columns) if one.spare), key=lambda one: -one.spare):
        if _taken([one for one in columns if one not in gone], cells, _LEAST_PROSE) > room:
            gone.append(column)
    for column in reversed(gone.copy()):
        without = [one for one in gone if one is not column]
        if _taken([one for one in columns if one not in without], cells, _GOOD_PROSE) <= room:
            gone = without
    return [one for one in columns if one not in gone]


def _cell(column: Column, row: Mapping[str, Any]) -> str:
    if column.is_prose:
        return cut(one_line(column.words(row)), column.limit)
    return one_line(column.words(row), _WHOLE_ID if column.is_id else column.limit)


def _taken(columns: Sequence[Column], cells: Mapping[str, Sequence[str]], cut_to: int | None = None) -> int:
    """Return how many terminal columns a table takes, the text of its last column cut to so many."""
    widths = [max(width(column.title), *map(width, cells[column.title])) for column in columns]
    if cut_to is not None and columns[-1].is_prose:
        widths[-1] = min(widths[-1], cut_to)
    return sum(widths) + 2 * (len(widths) - 1)
