"""Templates: everything that comes from a store is escaped; what a report made is markup already and says so."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from watcherml import __version__
from watcherml.report import glossary, markup, safe, units
from watcherml.ui.asking import address, item

HERE = Path(__file__).parent
VIEWS = (
    ("/", "Overview"),
    ("/projects", "Projects"),
    ("/runs", "Runs"),
    ("/failures", "Failures"),
    ("/campaigns", "Campaigns"),
    ("/memory", "Memory"),
    ("/guide", "Guide"),
    ("/settings", "Settings"),
)


class Page(NamedTuple):
    """A page: its template, what stands in it, the view it belongs to, and whether a form on it changes something."""

    template: str
    view: str
    title: str
    values: Mapping[str, Any]
    status: int = 200
    has_form: bool = False


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the templates; a name that a page did not fill is an error, not a blank."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    made.filters.update(
        line=safe.one_line,
        shown=lambda value, limit=markup.NAME_LIMIT: Markup(markup.shown(value, limit)),
        sentence=lambda value, limit: Markup(sentence(value, limit)),
        mono=lambda value, limit=markup.NAME_LIMIT: Markup(markup.mono(value, limit)),
        chip=lambda value, tone="quiet", title="": Markup(markup.chip(value, tone, title)),
        lines=lambda value, limit=markup.BLOCK_LIMIT: Markup(markup.escape_lines(value, limit)),
        time=units.format_time, moment=lambda value: moment(units.format_time(value)), seconds=units.format_seconds,
        label=glossary.label,
    )  # fmt: skip
    made.globals.update(
        views=VIEWS, version=__version__, plural=units.plural, item=item, address=address, meaning=glossary.meaning
    )
    return made


def sentence(value: object, columns: int) -> markup.Html:
    """Return a sentence cut at its end; where it was cut, the whole of it is its title."""
    line = safe.one_line(value)
    short = safe.cut(line, columns)
    return markup.hint(markup.escape(short), line if short != line else "")


def moment(text: str) -> Markup:
    """Return a time that breaks between day and hour and nowhere else."""
    day, _, hour = text.partition(" ")
    return Markup('<span class="whole">{}</span> <span class="whole">{}</span>').format(day, hour)


def render(page: Page, **more: Any) -> str:
    """Return a page as HTML."""
    template = environment().get_template(page.template)
    return template.render(view=page.view, title=page.title, **{**page.values, **more})


def face(html: str) -> Markup:
    """Return HTML that a report made as what it is."""
    return Markup(html)


@lru_cache(maxsize=1)
def assets() -> Mapping[str, tuple[bytes, str]]:
    """Return the files a page may ask for, by name, with their media types: read once, so that no path is opened."""
    kinds = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
    found = sorted(one for one in (HERE / "static").iterdir() if one.suffix in kinds)
    return {one.name: (one.read_bytes(), kinds[one.suffix]) for one in found}
