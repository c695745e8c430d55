"""SVG drawings: a line over steps or time, and a bar of a device's memory.

A notebook strips inline ``<svg>``, so a drawing travels as the data URI of an ``<img>``. Inside an image the
page's text colour is unknown; drawings therefore hold no text, and every number stands beside them in HTML.
They stretch to the width they are given: strokes keep their thickness, a dot is a line of no length.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape as escape_xml

from watcherml.report import palette
from watcherml.report.memory import Picture
from watcherml.report.safe import one_line

# Finer than the pixels of any screen a report is read on; keeps an image of a million points small.
COLUMNS = 480
WIDTH, HEIGHT = 960.0, 200.0
BAR_HEIGHT = 46.0
# A request of a hundred times the device would squeeze the device to a line.
_LARGEST_EXTENT = 1.6

Point = tuple[float, float | None]


@dataclass(frozen=True)
class Series:
    """One line: points (x, y) in any order, and its colour. A y of None, NaN or infinity interrupts the line."""

    points: Sequence[Point]
    tone: palette.Tone = "calm"


@dataclass(frozen=True)
class Chart:
    """A drawing with the limits of its axes. ``unusual`` counts values that are not finite (marked on the edge)."""

    svg: str
    x_low: float
    x_high: float
    y_low: float
    y_high: float
    unusual: int


def data_uri(svg: str) -> str:
    """Return an SVG document as a data URI for the ``src`` of an image."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode("utf-8")).decode("ascii")


def line_chart(series: Sequence[Series], *, level: float | None = None, title: str = "") -> Chart | None:
    """Draw lines over a common axis; ``level`` adds a dashed line (a budget) and widens the axis to show it.

    Returns None where no point has a finite x. Values that are not finite are marked by a tick on the edge:
    NaN and minus infinity below, infinity above.
    """
    points = [[(float(x), y) for x, y in one.points if math.isfinite(x)] for one in series]
    every = [point for one in points for point in one]
    if not every:
        return None
    finite = [y for _, y in every if y is not None and math.isfinite(y)]
    heights = finite + ([level] if level is not None and math.isfinite(level) else [])
    box = _Box(min(x for x, _ in every), max(x for x, _ in every), min(heights, default=0), max(heights, default=0))
    shapes = [_frame()]
    if level is not None and math.isfinite(level):
        y = box.y(level)
        shapes.append(_stroke(f"M0 {y:.1f}H{WIDTH:.0f}", palette.mark("bad"), 1, "6 4"))
    for one, drawn in zip(series, points, strict=True):
        shapes.extend(_line(box, sorted(drawn, key=lambda point: point[0]), palette.mark(one.tone)))
    unusual = sum(1 for _, y in every if y is not None and not math.isfinite(y))
    return Chart(
        _document(shapes, WIDTH, HEIGHT, title), box.x_low, box.x_high, box.y_low, box.y_high, unusual
    )  # fmt: skip


def memory_bar(picture: Picture) -> str:
    """Draw the parts of a device's memory to scale, and below them the request from where free memory began.

    The dashed line is the limit; what of the request lies beyond it is the shortfall.
    """
    request = picture.requested_bytes or 0
    whole = max(picture.limit_bytes, picture.used_bytes, 1)
    extent = min(max(whole, picture.used_bytes + request), whole * _LARGEST_EXTENT)
    scale = WIDTH / extent
    edge = picture.limit_bytes * scale
    shapes = [f'<rect x="0" y="3" width="{edge:.1f}" height="20" fill="{palette.mark("quiet")}" fill-opacity=".16"/>']
    start = 0.0
    for part in picture.parts:
        length = min(part.bytes * scale, WIDTH - start)
        if part.key != "free" and length > 0:
            shapes.append(_block(start, 3, length, 20, palette.memory_colour(part.key)))
        start += length
    if request:
        shapes.extend(_request(picture, scale))
    shapes.append(_stroke(f"M{edge:.1f} 0V{BAR_HEIGHT:.0f}", palette.mark("quiet"), 2, "4 3"))
    return _document(shapes, WIDTH, BAR_HEIGHT, picture.sentence)


def _request(picture: Picture, scale: float) -> Iterator[str]:
    """The request, cut where the missing bytes begin, so that the red part is the shortfall in length too."""
    request = picture.requested_bytes or 0
    missing = min(max(picture.shortfall_bytes or 0, 0), request)
    begin = min(picture.used_bytes * scale, WIDTH)
    fits = min((request - missing) * scale, WIDTH - begin)
    if fits > 0:
        yield _block(begin, 28, fits, 14, palette.memory_colour("requested"))
    if missing:
        # At least a sliver: a shortfall of a few MiB on a large card is still the news.
        length = max(min(missing * scale, WIDTH - begin - fits), 3.0)
        yield _block(min(begin + fits, WIDTH - length), 28, length, 14, palette.memory_colour("shortfall"))


@dataclass(frozen=True)
class _Box:
    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        return 4 + (WIDTH - 8) * _share(value, self.x_low, self.x_high)

    def y(self, value: float) -> float:
        return HEIGHT - 6 - (HEIGHT - 12) * _share(value, self.y_low, self.y_high)


def _share(value: float, low: float, high: float) -> float:
    # Halved before subtracting: the distance of two finite doubles can be infinite.
    span = high / 2 - low / 2
    return 0.5 if span == 0 else min(max((value / 2 - low / 2) / span, 0.0), 1.0)


def _line(box: _Box, points: Sequence[tuple[float, float | None]], colour: str) -> Iterator[str]:
    for run in _unbroken(points):
        placed = [(box.x(x), box.y(y)) for x, y in run]
        kept = _thinned(placed)
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in kept)
        # One point alone is a dot: a round cap on a line of no length.
        yield _stroke(path + "h0" if len(kept) == 1 else path, colour, 5 if len(kept) == 1 else 2)
    edges: set[tuple[int, float]] = set()
    for x, y in points:
        if y is not None and not math.isfinite(y):
            edges.add((round(box.x(x)), 0.0 if y > 0 else HEIGHT - 12))
    for at, top in sorted(edges):
        yield _stroke(f"M{at} {top:.0f}v12", palette.mark("bad"), 2)


def _unbroken(points: Sequence[tuple[float, float | None]]) -> Iterator[list[tuple[float, float]]]:
    run: list[tuple[float, float]] = []
    for x, y in points:
        if y is not None and math.isfinite(y):
            run.append((x, y))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Keep the first, lowest, highest and last point of each pixel column, so that no spike is lost."""
    if len(points) <= 2 * COLUMNS:
        return points
    columns: dict[int, list[tuple[float, float]]] = {}
    for point in points:
        columns.setdefault(int(point[0] * COLUMNS / WIDTH), []).append(point)
    kept: list[tuple[float, float]] = []
    for column in columns.values():
        low = min(range(len(column)), key=lambda index: column[index][1])
        high = max(range(len(column)), key=lambda index: column[index][1])
        kept.extend(column[index] for index in sorted({0, low, high, len(column) - 1}))
    return kept


def _frame() -> str:
    return _stroke(f"M0 {HEIGHT - 0.5}H{WIDTH:.0f}", palette.mark("quiet"), 1)


def _block(x: float, y: float, length: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.0f}" width="{length:.1f}" height="{height:.0f}" fill="{colour}"/>'


def _stroke(path: str, colour: str, thickness: int, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{thickness}" stroke-linecap="round"'
        f' stroke-linejoin="round" vector-effect="non-scaling-stroke"{dashed}/>'
    )


def _document(shapes: Sequence[str], width: float, height: float, title: str) -> str:
    named = f"<title>{escape_xml(one_line(title, 300))}</title>" if title else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}"'
        f' height="{height:.0f}" preserveAspectRatio="none">{named}{"".join(shapes)}</svg>'
    )
