"""The kinds of sealed documents, and the fields of one, as text. Values are those of ``watcherml.api.schema``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from watcherml.report import plain

_KEY = 26


def text_schemas(rows: Sequence[Mapping[str, Any]], *, color: bool = False) -> str:
    """Return the kinds, one a line."""
    cells = [(str(row["name"]), str(row["version"])) for row in rows]
    titles, *heads = plain.columns(("Document", "Version"), cells, numeric=(1,))
    wide = len(titles) + 2  # the sentences are wrapped beside these columns
    lines = [plain.bold(f"{titles}  What it is", color)]
    for head, row in zip(heads, rows, strict=True):
        first, *rest = plain.wrap(row["summary"], " " * wide, " " * wide)
        lines += [head + first[len(head) :], *rest]
    ending = plain.wrap("`watcher schema DOCUMENT` shows its fields, `--format json` its JSON Schema.")
    return plain.finish([*lines, "", *ending])


def text_schema(document: Mapping[str, Any], *, color: bool = False) -> str:
    """Return the fields of one kind: those of the document's value first, then those of each part of it."""
    head = f"{document['name']}, version {document['version']}: {document['summary']}"
    lines = [plain.bold(line, color) for line in plain.wrap(head)]
    lines += plain.wrap("A document has the keys kind, version, digest (SHA-256 of the three others) and value.")
    whole = next(iter(document["parts"]), "")
    for name, fields in document["parts"].items():
        title = f"value ({name})" if name == whole else name
        body = [line for key, held in fields.items() for line in _field(key, held)]
        lines += plain.section(title, body, color)
    return plain.finish(lines)


def _field(key: str, held: str) -> list[str]:
    return plain.wrap(held, " " * (_KEY + 2), f"  {key:<{_KEY - 1}} ", 1_000)
