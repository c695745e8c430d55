"""One question to a view: filters as SQL conditions, checked before the store is asked."""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

from watcherml.errors import InvalidValue, NotFound, StoreError
from watcherml.frames.build import columns, make_frame
from watcherml.store.claims import VERIFIED, backed
from watcherml.store.runs import COUNTED, with_counted_peak
from watcherml.store.sound import asked, each
from watcherml.store.storage import Storage

if TYPE_CHECKING:
    import pandas as pd

Where = Storage | str | os.PathLike[str] | None
Words = str | Iterable[str] | None
Moment = datetime | date | str | float | None
# The views in which a row can say "verified".
_CLAIMING = ("campaign_summary", "proposal_summary")
_RUNS = "run_summary"  # its samples may have missed the peak, which the receipt has


class Query:
    """Conditions on one view; ``frame`` asks the store. A filter that is None is no condition.

    ``text`` is a query of the view's columns with ``{where}`` in the place of its conditions.
    """

    def __init__(self, storage: Where, view: str, text: str = "") -> None:
        self.storage = storage if isinstance(storage, Storage) else Storage(storage)
        self._view = view
        counted = f", {COUNTED}" if view == _RUNS else ""
        self._text = text or f"SELECT {', '.join(columns(view))}{counted} FROM {view} {{where}}"
        self._conditions: list[str] = []
        self._values: list[Any] = []
        self._ids: list[tuple[str, str, str]] = []

    def where(self, condition: str, *values: Any) -> Query:
        """Add a condition."""
        self._conditions.append(condition)
        self._values += values
        return self

    def among(self, column: str, value: Words, field: str = "", inside: str = "") -> Query:
        """Keep rows whose column is one of the texts, or is in the query ``inside`` that ends before its list."""
        if value is None:
            return self
        texts = json.dumps(words(field or column, value))
        found = "(SELECT value FROM json_each(?))"
        return self.where(f"{column} IN ({inside} {found})" if inside else f"{column} IN {found}", texts)

    def one_of(self, column: str, value: Words, allowed: Sequence[str]) -> Query:
        """The same for a column whose values are known; ``InvalidValue`` for any other."""
        for text in () if value is None else words(column, value):
            if text not in allowed:
                raise InvalidValue(column, expected="one of " + ", ".join(allowed), got=repr(text)[:80])
        return self.among(column, value)

    def between(self, column: str, since: Moment, until: Moment) -> Query:
        """Keep rows from ``since`` on and before ``until``."""
        for sign, field, moment in ((">=", "since", since), ("<", "until", until)):
            if moment is not None:
                self.where(f"{column} {sign} ?", seconds(field, moment))
        return self

    def known(self, field: str, ids: Words, query: str) -> Query:
        """Refuse ids that the query does not return, once the store is asked."""
        self._ids += [(field, text, query) for text in (() if ids is None else words(field, ids))]
        return self

    def fold(self, run: Words) -> Query:
        """Bring the journals of these runs, or of all, into the database, so that their last points are there."""
        if not self.storage.exists:
            return self
        from watcherml.store.copies import pending_runs

        pending = pending_runs(self.storage.runs.spool_folder)
        for run_id in pending if run is None else set(pending) & set(words("run", run)):
            try:
                self.storage.fold(run_id)
            except StoreError:
                break  # a full disk: what is in the database can be read all the same
        return self

    def frame(self, order: str, limit: int | None = None, offset: int = 0) -> pd.DataFrame:
        """Return the rows; ``NotFound`` for an id that is not on record. Empty where there is no store."""
        _check_count("offset", offset)
        if limit is not None:
            _check_count("limit", limit)
        if not self.storage.exists:
            return make_frame(self._view, [])
        try:
            self.storage.settle()
        except StoreError:
            pass  # as above
        text = self._text.format(where="WHERE " + " AND ".join(self._conditions) if self._conditions else "")
        text += (f" ORDER BY {order}" if order else "") + " LIMIT ? OFFSET ?"
        with self.storage.database.reading() as connection:
            cursor = connection.cursor()
            cursor.row_factory = None  # tuples are made faster than rows with names
            self._check_ids(cursor)
            values = (*self._values, -1 if limit is None else limit, offset)
            rows = asked(connection, text, values, cursor)
            if self._view in _CLAIMING:
                rows = each(rows, partial(self._backed, connection))
            elif self._view == _RUNS:
                rows = each(rows, self._counted)
        return make_frame(self._view, rows)

    def _backed(self, connection: sqlite3.Connection, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a row; ``DamagedRow`` for one that says "verified" where the verdict on record does not."""
        said = dict(zip(columns(self._view), row, strict=True))
        if said.get("status") == VERIFIED or said.get("verified"):
            backed(connection, {"campaign_id": said["campaign_id"], "status": VERIFIED})
        return row

    def _counted(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        names = columns(self._view)
        said = with_counted_peak(dict(zip((*names, "counted_peak", "counted_by"), row, strict=True)))
        return tuple(said[name] for name in names)

    def _check_ids(self, cursor: Any) -> None:
        for field, text, query in self._ids:
            if cursor.execute(f"SELECT 1 WHERE ? IN ({query})", (text,)).fetchone() is None:
                raise NotFound(
                    f"{field}: nothing called {text[:100]!r} in {self.storage.path}",
                    remedy="`watcher runs` and `watcher recoveries` list what there is.",
                )


def words(field: str, value: str | Iterable[str]) -> list[str]:
    """Return one text or several as a list; ``InvalidValue`` naming the field for anything else."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray, Mapping)):
        found = list(value)
        if all(isinstance(one, str) for one in found):
            return found
    raise InvalidValue(field, expected="a text or a list of texts", got=repr(value)[:80])


def seconds(field: str, value: datetime | date | str | float) -> float:
    """Return a moment as seconds since 1970; ``InvalidValue`` naming the field if it is none."""
    found = value
    if isinstance(found, str):
        try:
            found = datetime.fromisoformat(found[:-1] + "+00:00" if found.endswith(("Z", "z")) else found)
        except ValueError:
            raise _no_moment(field, value) from None
        found = found if found.tzinfo else found.replace(tzinfo=timezone.utc)
    if isinstance(found, date) and not isinstance(found, datetime):
        found = datetime(found.year, found.month, found.day, tzinfo=timezone.utc)
    if isinstance(found, datetime):
        if found.tzinfo is None:
            raise _no_moment(field, value)
        found = found.timestamp()
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not math.isfinite(found):
        raise _no_moment(field, value)
    return float(found)


def _no_moment(field: str, value: object) -> InvalidValue:
    expected = "a datetime with a time zone, a date, an ISO 8601 text, or seconds since 1970"
    return InvalidValue(field, expected=expected, got=repr(value)[:80])


def _check_count(field: str, value: object) -> None:
    if type(value) is not int or value < 0:
        raise InvalidValue(field, expected="a whole number of at least 0", got=repr(value)[:80])
