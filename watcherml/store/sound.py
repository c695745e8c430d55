"""Are the values of a row what the program has written there? SQLite keeps whatever somebody put into a column.

A row that was asked for by its id is refused by name; of a list it is left out with a warning, so that one damaged row
hides no other.
"""

from __future__ import annotations

import json
import sqlite3
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from watcherml.errors import DamagedRow, InvalidValue

T = TypeVar("T")
Row = dict[str, Any]
LAST_SECOND = 253_402_300_800.0  # of the year 9999
_MOST = 2**63
_SHOWN_CHARACTERS = 80
# What stands in a column that SQLite could not take out of a JSON text: no column holds such bytes.
_UNREADABLE = b"no JSON"

# By table or view: what names a row, then each column with the kind of its values; "?" where it may be NULL.
_RUN = (
    "run_id: run_id:text project:text role:text campaign_id:text? trial_id:text? status:text end_reason:text"
    " started_at:time ended_at:time? heartbeat_at:time pid:number process_started:number boot_id:text config:object"
    " lossy_paths:list redacted_paths:list device:object? device_kind:text last_step:number? facts:object"
    " receipt:object? title:text? origin:text duration_s:number at:time failure_class:text? peak_rss_bytes:number?"
    " peak_device_bytes:number?"
)
_CAPSULE = (
    "run_id: run_id:text project:text origin:text role:text digest:text failure_class:text subkind:text sentence:text"
    " created_at:time document:text resolved_at:time? resolved_by:text? resolved_note:text? title:text?"
    " device_kind:text"
)
_SPECS = {
    "runs": _RUN,
    "capsules": _CAPSULE,
    "campaigns": "campaign_id: campaign_id:text project:text source_run_id:text plan_digest:text created_at:time"
    " last_change:text? status:text? reason_code:text? sentence:text? candidate_id:text? device_kind:text?"
    " ended_at:time? trials:number? trial_wall_s:number?",
    "trials": "trial_id: trial_id:text campaign_id:text seq:number role:text proposal_id:text? run_id:text"
    " started_at:time ended_at:time? outcome:text steps:number? peak_bytes:number? wall_s:number? gpu_s:number?"
    " sentence:text?",
    "events": "campaign_id seq: campaign_id:text seq:number at:time type:text body:object",
    "cells": "session_id seq: session_id:text seq:number run_id:text? execution_count:number? cell_id:text? source:text"
    " status:text error_type:text? error_message:text? started_at:time seconds:number",
    "samples": "run_id at: run_id:text at:time cpu_percent:number? rss_bytes:number? host_used_bytes:number?"
    " device_kind:text device_allocated_bytes:number? device_reserved_bytes:number? tree_cpu_percent:number?"
    " tree_rss_bytes:number?",
    "gpu_samples": "run_id at: run_id:text at:time gpu_index:number uuid:text utilization_percent:number?"
    " used_bytes:number? total_bytes:number? own_bytes:number?",
    "artifacts": "run_id path: run_id:text path:text size_bytes:number sha256:text? at:time",
    "metrics": "name at: name:text step:number? at:time value:any",
    "projects": "project: project:text last_at:time",
    "imports": "digest: digest:text document:object",
}


# Where each row can be looked at in seconds; points and readings are millions. A view has what lists show.
LOOKED_AT = {
    "runs": "runs",
    "capsules": "capsules",
    "campaigns": "(SELECT * FROM campaign_summary JOIN (SELECT campaign_id, plan_digest FROM campaigns)"
    " USING (campaign_id))",
    "trials": "trial_summary",
    "events": "events",
    "cells": "cells",
    "artifacts": "artifacts",
}


class DamagedRowWarning(UserWarning):
    """A damaged row was left out of a list."""


_heard: ContextVar[list[str] | None] = ContextVar("rows that were left out", default=None)


@contextmanager
def hearing() -> Iterator[list[str]]:
    """Collect what the lists leave out in this block, instead of warning of it: a page says it itself."""
    heard: list[str] = []
    token = _heard.set(heard)
    try:
        yield heard
    finally:
        _heard.reset(token)


def sound(table: str, row: Mapping[str, Any] | sqlite3.Row) -> Row:
    """Return a row with its JSON columns decoded; ``DamagedRow`` if a column holds what no version wrote there."""
    found = dict(row)
    names, columns = _spec(table)
    for key, value in found.items():
        kind = columns.get(key)
        if kind is not None:
            try:
                found[key] = _value(kind, value)
            except InvalidValue as error:
                who = ", ".join(_named(found.get(name)) for name in names)
                raise damaged(table, who, key, error.expected, error.got) from None
    return found


def all_sound(table: str, rows: Iterable[Any]) -> list[Row]:
    """Return the rows of a list as ``sound`` does, without the damaged ones, each of which is one warning."""
    return each(rows, lambda row: sound(table, row))


def each(rows: Iterable[Any], make: Callable[[Any], T]) -> list[T]:
    """Return what is made of each row of a list; one for which that raises ``DamagedRow`` is a warning."""
    found = []
    for row in rows:
        try:
            found.append(make(row))
        except DamagedRow as error:
            heard = _heard.get()
            if heard is None:
                warnings.warn(f"Left out of the list: {error}", DamagedRowWarning, stacklevel=3)
            elif str(error) not in heard:
                heard.append(str(error))
    return found


def damage(connection: sqlite3.Connection) -> list[str]:
    """Return what is damaged in the tables of ``LOOKED_AT``, a sentence each."""
    with hearing() as heard:
        for table, source in LOOKED_AT.items():
            all_sound(table, connection.execute(f"SELECT * FROM {source}"))
    return heard


def asked(
    connection: sqlite3.Connection,
    query: str,
    values: Sequence[Any] | Mapping[str, Any],
    cursor: sqlite3.Cursor | None = None,
) -> list[Any]:
    """Return the rows of a list, also where a column that the query looks into holds no JSON.

    ``all_sound`` then finds the column that was to be taken out of it damaged. ``cursor`` is one of the connection.
    """
    reader = connection if cursor is None else cursor
    try:
        return reader.execute(query, values).fetchall()
    except sqlite3.OperationalError as error:
        if "malformed JSON" not in str(error):
            raise
    # Only now, because it is many times slower than SQLite's own.
    connection.create_function("json_extract", -1, _extract, deterministic=True)
    return reader.execute(query, values).fetchall()


def damaged(table: str, row_id: str, column: str, expected: str, got: str) -> DamagedRow:
    """Return the error that names a damaged value."""
    return DamagedRow(
        f"table {table}, row {row_id}: {column}",
        expected=expected,
        got=got,
        remedy="The store was changed or damaged there: restore it from a copy. Its other rows can still be read.",
    )


def _spec(table: str) -> tuple[list[str], dict[str, str]]:
    found = _read.get(table)
    if found is None:
        names, _, columns = _SPECS[table].partition(": ")
        pairs = (column.partition(":") for column in columns.split())
        found = _read[table] = names.split(), {name: kind for name, _, kind in pairs}
    return found


_read: dict[str, tuple[list[str], dict[str, str]]] = {}


def _value(kind: str, value: Any) -> Any:
    if value is None and kind.endswith("?"):
        return None
    kind = kind.rstrip("?")
    if kind == "text":
        good = isinstance(value, str)
    elif kind == "number":
        good = isinstance(value, (int, float)) and -_MOST < value < _MOST
    elif kind == "time":
        good = isinstance(value, (int, float)) and 0 <= value < LAST_SECOND
    elif kind in ("object", "list"):
        return _decoded(kind, value)
    else:
        good = not isinstance(value, (bytes, str))
    if not good:
        raise InvalidValue("", expected=_WORDS[kind], got=_shown(value))
    return value


_WORDS = {"text": "text", "number": "a number", "time": "seconds since 1970", "object": "a JSON object",
          "list": "a JSON list", "any": "a number or nothing"}  # fmt: skip


def _decoded(kind: str, value: Any) -> Any:
    if not isinstance(value, str):
        raise InvalidValue("", expected=_WORDS[kind], got=_shown(value))
    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as error:  # SQLite does not notice a changed byte within a text
        raise InvalidValue("", expected=_WORDS[kind], got=f"{_shown(value)} ({error})") from None
    if not isinstance(found, dict if kind == "object" else list):
        raise InvalidValue("", expected=_WORDS[kind], got=_shown(value))
    return found


def _named(value: Any) -> str:
    return str(value) if isinstance(value, int) else _shown(value)


def _shown(value: Any) -> str:
    if value == _UNREADABLE:
        return "what is no JSON"
    text = value if isinstance(value, str) else "nothing" if value is None else repr(value)
    text = text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"
    return text if value is None or isinstance(value, str) else f"{text} ({type(value).__name__})"


def _extract(document: Any, *paths: str) -> Any:
    """Do what SQLite's own ``json_extract`` does with such paths as are used here."""
    if document is None:
        return None
    try:
        values = [_at(json.loads(document), path) for path in paths]
    except (ValueError, TypeError, RecursionError):
        return _UNREADABLE
    if len(values) > 1:
        return json.dumps(values)
    return json.dumps(values[0]) if isinstance(values[0], (dict, list)) else values[0]


def _at(value: Any, path: str) -> Any:
    for key in path.split(".")[1:]:
        value = value.get(key) if isinstance(value, dict) else None
    return value
