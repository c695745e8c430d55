"""What a request asks for: filters, the page of a list, and the fields of a form."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import parse_qs, quote, urlencode

from starlette.requests import Request

from watcherml.errors import InvalidValue
from watcherml.report.units import plural
from watcherml.store.pages import Cut

PAGE_ROWS = 50
_MOST_PAGES = 1_000_000
_LONGEST_FILTER = 400
_LARGEST_FORM_BYTES = 65_536
_MOST_FIELDS = 10
_FORM = "application/x-www-form-urlencoded"

Kind = TypeVar("Kind", bound=str)


def text(request: Request, name: str) -> str | None:
    """Return a filter's text without surrounding blanks, None where it is left out or empty."""
    value = request.query_params.get(name, "").strip()
    if len(value) > _LONGEST_FILTER:
        raise InvalidValue(name, expected=f"at most {_LONGEST_FILTER} characters", got=plural(len(value), "character"))
    return value or None


def exact(request: Request, name: str) -> str | None:
    """Return a filter's text as it is, however long: a project may be called anything."""
    return request.query_params.get(name) or None


def choice(request: Request, name: str, allowed: Collection[str]) -> str | None:
    """Return one of the values that a filter can have, None where it is left out."""
    value = text(request, name)
    if value is not None and value not in allowed:
        raise InvalidValue(
            name, expected=f"one of {', '.join(allowed)}", got=repr(value[:60]), remedy="Leave it out to see all."
        )
    return value


def number(request: Request, name: str, highest: int = _MOST_PAGES) -> int:
    """Return a page's number, from 1; 1 where it is left out."""
    value = request.query_params.get(name, "1")
    if not (value.isascii() and value.isdecimal() and len(value) < 10 and 1 <= int(value) <= highest):
        raise InvalidValue(name, expected=f"a whole number from 1 to {highest:,}", got=repr(value[:60]))
    return int(value)


@dataclass(frozen=True)
class Pager:
    """Where in a list a page stands: its number from 1, and how many rows there are in all."""

    path: str
    query: Mapping[str, str]
    page: int
    total: int
    rows: int = PAGE_ROWS
    name: str = "page"
    anchor: str = ""

    @property
    def pages(self) -> int:
        """How many pages there are; an empty list has one."""
        return max(1, -(-self.total // self.rows))

    @property
    def words(self) -> str:
        """Which rows these are: ``51 to 100 of 10,000``."""
        first, last = (self.page - 1) * self.rows + 1, min(self.page * self.rows, self.total)
        return f"{first:,} to {last:,} of {self.total:,}" if self.total >= first else f"none of {self.total:,}"

    @property
    def newer(self) -> str:
        """The address of the page before, empty for the first one."""
        return self.at(min(self.page - 1, self.pages)) if self.page > 1 else ""

    @property
    def older(self) -> str:
        """The address of the page after, empty for the last one."""
        return self.at(self.page + 1) if self.page < self.pages else ""

    def at(self, page: int) -> str:
        """Return the address of a page with the filters as they are."""
        found = {**self.query, **({self.name: str(page)} if page > 1 else {})}
        if page == 1:
            found.pop(self.name, None)
        return address(self.path, **found) + self.anchor


def cut(page: int, rows: int = PAGE_ROWS) -> Cut:
    """Return which rows a page shows."""
    return Cut(rows, (page - 1) * rows)


def pager(request: Request, page: int, total: int, **options: object) -> Pager:
    """Return where a page of a list stands, with the filters of its request."""
    query = {key: value for key, value in request.query_params.items() if value}
    return Pager(path_of(request), query, page, total, **options)  # type: ignore[arg-type]


def path_of(request: Request) -> str:
    """Return the path that was asked for, quoted again."""
    return quote(request.url.path if "%" in request.url.path else str(request.scope["path"]), safe="/%")


def address(path: str, /, **query: str | None) -> str:
    """Return a path with the parts of its query that are not None; they may have any name."""
    given = {key: value for key, value in query.items() if value is not None}
    return f"{path}?{urlencode(given, errors='replace')}" if given else path


def item(kind: str, name: object) -> str:
    """Return the address of one run, failure or campaign."""
    return f"/{kind}/{quote(str(name), safe='', errors='replace')}"


async def form(request: Request) -> dict[str, str]:
    """Return the fields of a form, each once; ``InvalidValue`` for another kind of body or one that is too large."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _FORM:
        raise InvalidValue("the request's body", expected=f"a form ({_FORM})", got=kind[:80] or "nothing")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST_FORM_BYTES:
            raise InvalidValue("the form", expected=f"at most {_LARGEST_FORM_BYTES:,} bytes", got="more",
                               remedy="A name has at most 400 characters, a note at most 2,000.")  # fmt: skip
    try:
        found = parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise InvalidValue("the form", expected="fields in UTF-8, encoded as a form", got=str(error)[:100]) from None
    twice = sorted(name for name, values in found.items() if len(values) > 1)
    if twice:
        raise InvalidValue(twice[0][:60], expected="this field once", got="several times")
    return {name: values[0] for name, values in found.items()}
