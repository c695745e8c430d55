"""Looking through a store for what still reads like a secret.

Redaction happens when something is written. What an older version wrote, what no rule knew then, or what stands in a
variable of the environment today, is found here: in every text of every table and in the store's files. No finding
holds the secret itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from watcherml.recorder.redact import findings, placeholder, redact_text
from watcherml.store.gate import opened
from watcherml.store.storage import Storage

_CONTEXT_CHARACTERS = 24
_BLOCK_BYTES = 1 << 20
_MAX_DOCUMENT_BYTES = 64 << 20
_MAX_PATH = 300
# Rows of numbers, with words of our own only.
_NUMBERS = ("metrics", "metric_ranges", "samples", "gpu_samples", "spools")
_TEXT_TYPES = ("TEXT", "BLOB", "")
# The database is read through SQLite; a journal's points are numbers.
_NOT_TEXT = (".db", ".db-wal", ".db-shm", ".db-journal", ".points")


@dataclass(frozen=True)
class Finding:
    """One text that looks like a secret.

    ``table`` is a table, or "file" with the file's path within the store as ``column``. ``row`` names the row by its
    key, ``run_id`` the run it belongs to, if any. ``path`` is the place within a JSON document. ``kind`` is the kind of
    shape; ``excerpt`` is what stands around it, with a placeholder for the secret.
    """

    table: str
    column: str
    row: str
    run_id: str | None
    path: str
    kind: str
    excerpt: str


def scan(storage: Storage) -> Iterator[Finding]:
    """Yield what looks like a secret in a store, table by table and then file by file; memory holds one row at a time.

    A value that a secret-like variable of this process's environment holds counts too. Writes nothing. Raises
    ``StoreError`` where there is no store that can be read.
    """
    with storage.database.reading() as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        for (table,) in names:
            if table not in _NUMBERS and not table.startswith("sqlite_"):
                yield from _table(connection, table)
    yield from _files(storage.path)


def _table(connection: Connection, table: str) -> Iterator[Finding]:
    columns = connection.execute(f"PRAGMA table_info({_quoted(table)})").fetchall()
    texts = [row[1] for row in columns if row[2].upper() in _TEXT_TYPES]
    keys = [row[1] for row in sorted(columns, key=lambda row: row[5]) if row[5]]
    has_run = any(row[1] == "run_id" for row in columns)
    if not texts:
        return
    wanted = list(dict.fromkeys([*keys, *(["run_id"] if has_run else []), *texts]))
    for row in connection.execute(f"SELECT {', '.join(map(_quoted, wanted))} FROM {_quoted(table)}"):
        values = dict(zip(wanted, row, strict=True))
        run_id = values.get("run_id")
        for column in texts:
            for path, kind, excerpt in _found(values[column]):
                if run_id is None and table == "blobs":
                    run_id = _run_of_blob(connection, values["digest"])
                name = ", ".join(f"{key}={values[key]}" for key in keys)
                yield Finding(table, column, redact_text(name)[:_MAX_PATH], run_id, path, kind, excerpt)


def _run_of_blob(connection: Connection, digest: str) -> str | None:
    """Return the newest run whose facts name a blob; a patch is stored once for all of its runs."""
    row = connection.execute(
        "SELECT run_id FROM runs WHERE instr(facts, ?) ORDER BY started_at DESC LIMIT 1", (digest,)
    ).fetchone()
    return None if row is None else str(row[0])


def _files(folder: Path) -> Iterator[Finding]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if name.endswith(_NOT_TEXT) or path.is_symlink() or not path.is_file():
                continue
            shown = redact_text(path.relative_to(folder).as_posix())[:_MAX_PATH]
            try:
                for where, kind, excerpt in _in_file(path):
                    yield Finding("file", shown, "", None, where, kind, excerpt)
            except OSError:
                continue  # gone since it was listed, or not ours to read


def _in_file(path: Path) -> Iterator[tuple[str, str, str]]:
    with opened(path) as stream:
        if path.suffix == ".json" and path.stat().st_size <= _MAX_DOCUMENT_BYTES:
            yield from _found(stream.read())
            return
        line = 1
        while block := stream.read(_BLOCK_BYTES):
            block += stream.readline()  # no secret is cut in two
            for _, kind, excerpt in _found(block):
                yield f"from line {line}", kind, excerpt
            line += block.count(b"\n")


def _found(value: Any) -> Iterator[tuple[str, str, str]]:
    """Yield path, kind and excerpt of what looks like a secret in one value of a row or file."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str) or not value:
        return
    for path, text, spans in findings(_document(value)):
        for index, span in enumerate(spans):
            kind = span.kind
            yield redact_text(path)[:_MAX_PATH], kind, _excerpt(text, spans, index)


def _document(text: str) -> Any:
    """Return a JSON document's value, any other text as it is."""
    if text[:1] in "{[":
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    return text


def _excerpt(text: str, spans: Sequence[Any], index: int) -> str:
    span = spans[index]
    first = max(spans[index - 1].end if index else 0, span.start - _CONTEXT_CHARACTERS)
    last = min(spans[index + 1].start if index + 1 < len(spans) else len(text), span.end + _CONTEXT_CHARACTERS)
    shown = f"{text[first : span.start]}{placeholder(text[span.start : span.end])}{text[span.end : last]}"
    before, after = "…" if first else "", "…" if last < len(text) else ""
    return before + " ".join(shown.split()) + after


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
