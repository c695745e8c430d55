"""The few shapes that every text face is built from: wrapped lines, label columns, aligned tables, colour.

Every value is made harmless first (see ``safe``), so that no name can move the cursor of a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from watcherml.report import safe
from watcherml.report.palette import Tone

WIDTH = 96  # columns; fits a notebook's output area and half a screen
_NARROWEST = 40
_LABEL = 16
_columns = WIDTH
_SGR: dict[Tone, str] = {"good": "32", "bad": "31", "warn": "33", "calm": "36", "quiet": "2"}


def fit(columns: int | None) -> int:
    """From here on wrap to so many columns, 40 to 96; None is a place without columns, where lines take 96.

    For a process that writes to one terminal, as the command line does. Returns what it was before.
    """
    global _columns
    before, _columns = _columns, WIDTH if columns is None else max(_NARROWEST, min(WIDTH, columns))
    return before


def paint(text: str, tone: Tone, color: bool) -> str:
    """Return text in an ANSI colour, or as it is."""
    return f"\x1b[{_SGR[tone]}m{text}\x1b[0m" if color and text else text


def bold(text: str, color: bool) -> str:
    """Return text in bold, or as it is."""
    return f"\x1b[1m{text}\x1b[0m" if color and text else text


def wrap(value: object, indent: str = "", first: str | None = None, limit: int = 2_000) -> list[str]:
    """Return a value as lines of at most 96 columns (see ``fit``), ``first`` standing before the first one."""
    head = indent if first is None else first
    import textwrap  # not needed for tables, which are what is printed most

    text = safe.one_line(value, limit)
    lines = textwrap.wrap(text, _columns, initial_indent=head, subsequent_indent=indent, break_on_hyphens=False)
    return lines or [head.rstrip()]


def pair(name: str, value: object, limit: int = 600) -> list[str]:
    """Return a label with its value beside it; nothing for an empty value."""
    if not str(value):
        return []
    return wrap(value, " " * (_LABEL + 2), f"  {safe.one_line(name, _LABEL - 1):<{_LABEL}}", limit)


def section(title: str, lines: Iterable[str], color: bool) -> list[str]:
    """Return a titled part after an empty line; nothing where there are no lines."""
    body = list(lines)
    return ["", bold(title, color), *body] if body else []


def bar(part: float | None, whole: float | None, columns: int = 20) -> str:
    """Return a bar of ``part`` in ``whole`` (same unit): ``[######----]``; ``!`` at its end where it is more."""
    if part is None or not whole:
        return ""
    filled = min(columns, max(0, round(columns * part / whole)))
    return f"[{'#' * filled}{'-' * (columns - filled)}]{'!' if part > whole else ''}"


def columns(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numeric: Sequence[int] = (),
    tones: Sequence[Sequence[Tone | None]] = (),
    color: bool = False,
    indent: str = "",
) -> list[str]:
    """Return an aligned table. Wide characters count two columns; ``tones`` colours cells, row by row."""
    cells = [[safe.one_line(value) for value in row] for row in rows]
    widths = [
        max(safe.width(title), *(safe.width(row[index]) for row in cells)) if cells else safe.width(title)
        for index, title in enumerate(titles)
    ]
    lines = [bold(indent + _row(titles, widths, numeric), color)]
    for number, row in enumerate(cells):
        painted = list(row)
        padded = [_pad(value, widths[index], index in numeric) for index, value in enumerate(row)]
        if color and tones:
            # Colour goes on after padding: escape sequences take no column.
            painted = [
                padded[index].replace(value, paint(value, tone, True), 1) if tone and value else padded[index]
                for index, (value, tone) in enumerate(zip(row, tones[number], strict=True))
            ]
            lines.append((indent + "  ".join(painted)).rstrip())
        else:
            lines.append((indent + "  ".join(padded)).rstrip())
    return lines


def text_block(value: object, limit: int = 60_000) -> list[str]:
    """Return text with its own lines, indented by two."""
    return ["  " + line for line in safe.many_lines(value, limit).rstrip("\n").split("\n")]


def finish(lines: Iterable[str]) -> str:
    """Return lines as one text that ends with a line feed."""
    return "\n".join(lines) + "\n"


def _row(values: Sequence[str], widths: Sequence[int], numeric: Sequence[int]) -> str:
    return "  ".join(_pad(value, widths[index], index in numeric) for index, value in enumerate(values)).rstrip()


def _pad(value: str, columns: int, to_right: bool) -> str:
    space = " " * max(0, columns - safe.width(value))
    return space + value if to_right else value + space
