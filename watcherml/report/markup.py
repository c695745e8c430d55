"""The few shapes that every HTML face is built from, and the one way in which a value enters HTML.

What survives an untrusted notebook sets the limits (measured in JupyterLab): inline ``style=``, tables,
``<details>``, ``<img>`` with a data URI. No ``<style>``, ``<script>``, inline ``<svg>``, ``role`` or ``aria-*``.
Its sanitizer also drops ``overflow-wrap:anywhere`` and ``color:inherit`` (4.6), so that ``break-word`` has to do.
JupyterLab stripes table rows, right-aligns cells and paints ``<pre>``; each of these is overridden inline.

``Html`` marks text that is markup already. A plain ``str`` has to pass ``escape`` to become one, and mypy checks it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import NewType

from watcherml.report import palette, safe
from watcherml.report.palette import Tone
from watcherml.report.timeline import data_uri

Html = NewType("Html", str)
EMPTY = Html("")

NAME_LIMIT = 96  # characters of a name, id or value on one line
SENTENCE_LIMIT = 600
TITLE_LIMIT = 20_000
BLOCK_LIMIT = 60_000  # characters of a traceback
_SENTENCE_WRAPPED = 80  # characters above which a wrapped cell holds a sentence
_TAG = re.compile("<[^>]*>")

_CELL = "text-align:left;vertical-align:top;padding:2px 14px 2px 0;border:none;background:transparent;line-height:1.5"
_HEAD = _CELL + f";font-weight:600;opacity:.75;border-bottom:{palette.RULE}"
_PRE = (
    "margin:6px 0;padding:8px 10px;overflow-x:auto;max-height:420px;white-space:pre-wrap;overflow-wrap:break-word;"
    f"background:rgba(128,128,128,.08);border:{palette.RULE};border-radius:4px;font-family:monospace;font-size:12px;"
    "line-height:1.45;text-align:left"
)


def escape(value: object, limit: int | None = None) -> Html:
    """Return any value as inert text on one line, cut at ``limit`` characters."""
    return Html(html.escape(safe.one_line(value, limit), quote=True))


def escape_lines(value: object, limit: int | None = None) -> Html:
    """Return any value as inert text that keeps its lines, for a ``<pre>``."""
    return Html(html.escape(safe.many_lines(value, limit), quote=True))


def shown(value: object, limit: int = NAME_LIMIT) -> Html:
    """Return a value on one line; if it was cut, the whole of it (to 20,000 characters) is its title."""
    text = safe.one_line(value)
    if len(text) <= limit:
        return escape(text)
    return hint(escape(text, limit), text)


def hint(body: Html, title: str) -> Html:
    """Return markup with an explanation that appears when it is pointed at; without a title as it is."""
    return Html(f"<span{_title(title)}>{body}</span>") if title else body


def mono(value: object, limit: int = NAME_LIMIT) -> Html:
    """Return a value in fixed-width letters: an id, a path, a setting."""
    return Html(f'<span style="font-family:monospace;font-size:.95em">{shown(value, limit)}</span>')


def join(parts: Iterable[Html], separator: str = "") -> Html:
    """Return parts of markup one after the other; the separator is text."""
    return Html(escape(separator).join(parts))


def root(*parts: Html, wide: bool = False) -> Html:
    """Return the outermost box of a face. It sets what surroundings would set otherwise (ipywidgets: 28px lines)."""
    style = "font-size:13px;line-height:1.5;text-align:left;overflow-wrap:break-word;white-space:normal"
    # Longer lines are hard to read; a list has no lines to read, only columns.
    style += "" if wide else ";max-width:1000px"
    return Html(f'<div class="watcherml-report" style="{style}">{join(parts)}</div>')


def banner(tone: Tone, kicker: Html, headline: Html, *below: Html) -> Html:
    """Return the head of a face: what it is, in small; what happened and what to do next, in large."""
    box = f"border-left:4px solid {palette.mark(tone)};padding:1px 0 1px 12px;margin:2px 0 12px 0"
    lines = [f'<div style="font-size:12px;opacity:.72">{kicker}</div>'] if kicker else []
    lines.append(f'<div style="font-size:16px;font-weight:600;line-height:1.4;margin:2px 0">{headline}</div>')
    lines.extend(f"<div>{line}</div>" for line in below if line)
    return Html(f'<div style="{box}">{"".join(lines)}</div>')


def section(title: str, *body: Html) -> Html:
    """Return a titled part. Not a heading element: JupyterLab would list it in the notebook's own contents."""
    head = f'<div style="font-weight:600;font-size:14px;margin:16px 0 5px 0">{escape(title)}</div>'
    return Html(head + join(body))


def fold(summary: Html, *body: Html, opened: bool = False) -> Html:
    """Return a part that opens on a click and without a script."""
    attribute = " open" if opened else ""
    return Html(
        f'<details style="margin:4px 0"{attribute}><summary style="cursor:pointer">{summary}</summary>'
        f'<div style="margin:2px 0 6px 16px">{join(body)}</div></details>'
    )


def chip(text: str, tone: Tone = "quiet", title: str = "") -> Html:
    """Return a short word in a coloured frame; its text keeps the page's colour."""
    style = (
        f"display:inline-block;border:1px solid {palette.mark(tone)};background:{palette.tint(tone)};"
        "border-radius:9px;padding:0 8px;font-size:12px;line-height:18px;font-weight:normal;white-space:nowrap"
    )
    return Html(f'<span style="{style}"{_title(title)}>{escape(text, 40)}</span>')


def quiet(body: Html) -> Html:
    """Return text of less weight."""
    return Html(f'<span style="opacity:.72">{body}</span>')


def strong(body: Html) -> Html:
    """Return text of more weight."""
    return Html(f'<span style="font-weight:600">{body}</span>')


def paragraph(body: Html) -> Html:
    """Return a sentence on lines of its own."""
    return Html(f'<div style="margin:3px 0">{body}</div>')


def bullets(lines: Iterable[Html]) -> Html:
    """Return sentences as a list, or nothing for none."""
    items = "".join(f'<li style="margin:2px 0">{line}</li>' for line in lines)
    return Html(f'<ul style="margin:2px 0 6px 0;padding-left:18px">{items}</ul>') if items else EMPTY


def pairs(rows: Iterable[tuple[str, Html]]) -> Html:
    """Return labels with their values; a row without a value is left out."""
    label = _CELL + ";opacity:.72;width:118px"
    lines = "".join(
        f'<tr style="background:transparent"><td style="{label}">{escape(name, 60)}</td>'
        f'<td style="{_CELL};overflow-wrap:break-word">{value}</td></tr>'
        for name, value in rows
        if value
    )
    # Fixed layout, so that a long value wraps instead of widening the table.
    style = "border-collapse:collapse;table-layout:fixed;width:100%;margin:0;border:none;font-size:13px"
    return Html(f'<table style="{style}"><tbody>{lines}</tbody></table>') if lines else EMPTY


def grid(
    headers: Sequence[str], rows: Iterable[Sequence[Html]], *, numeric: Sequence[int] = (), wrapped: Sequence[int] = ()
) -> Html:
    """Return a table that scrolls sideways in its own box.

    Columns by number: ``numeric`` ones are set to the right, ``wrapped`` ones break their lines, all others keep
    to one line.
    """
    right = dict.fromkeys(numeric, ";text-align:right")
    head = "".join(
        f'<th style="{_HEAD};white-space:nowrap{right.get(index, "")}">{escape(name)}</th>'
        for index, name in enumerate(headers)
    )
    lines = "".join(
        '<tr style="background:transparent">'
        + "".join(
            f'<td style="{_CELL};white-space:{"normal" if index in wrapped else "nowrap"}{right.get(index, "")}">'
            f"{_measured(value) if index in wrapped else value}</td>"
            for index, value in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    style = "border-collapse:collapse;margin:0;border:none;font-size:13px;table-layout:auto"
    table = f'<table style="{style}"><thead style="border:none"><tr style="background:transparent">{head}</tr></thead>'
    return Html(f'<div style="overflow-x:auto;margin:4px 0">{table}<tbody>{lines}</tbody></table></div>')


def _measured(value: Html) -> Html:
    # Widths on cells are not honoured; on a box inside they are. A sentence in a narrow column is a tower of words.
    least = 72 if len(_TAG.sub("", value)) <= _SENTENCE_WRAPPED else 300
    return Html(f'<div style="min-width:{least}px;max-width:340px">{value}</div>')


def block(body: Html) -> Html:
    """Return text with its own lines in a box that scrolls."""
    return Html(f'<pre style="{_PRE}">{body}</pre>')


def picture(svg: str, alt: str, height: int) -> Html:
    """Return an SVG document as an image as wide as its surroundings, ``height`` pixels high."""
    style = f"display:block;width:100%;max-width:100%;height:{height}px;margin:0"
    return Html(f'<img src="{data_uri(svg)}" alt="{escape(alt, SENTENCE_LIMIT)}" style="{style}">')


def gauge(part: float | None, whole: float | None, title: str = "", length: int = 110) -> Html:
    """Return a bar ``length`` pixels long of ``part`` in ``whole`` (same unit), red where it is more.

    Nothing where either is unknown.
    """
    if part is None or not whole:
        return EMPTY
    over = part > whole
    share = 100.0 if over else max(0.0, 100 * part / whole)
    frame = f"border:{palette.RULE};border-radius:4px;overflow:hidden"
    outer = f"width:{length}px;max-width:100%;height:6px;margin:3px 0;{frame}"
    inner = f"width:{share:.1f}%;height:100%;background:{palette.mark('bad' if over else 'calm')}"
    return Html(f'<div style="{outer}"{_title(title)}><div style="{inner}"></div></div>')


def _title(text: str) -> str:
    return f' title="{escape(text, TITLE_LIMIT)}"' if text else ""
