"""``watcher schema [DOCUMENT]``: what sealed documents are made of."""

from __future__ import annotations

import argparse

from watcherml.cli.console import Console
from watcherml.cli.shared import add_format, as_json, deliver

_NOTES = """\
With --format json the output of `watcher schema DOCUMENT` is a JSON Schema (2020-12), ready for a validator. A schema
says what each field may hold; digests, canonical bytes and rules across fields are checked by the program alone."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = _NOTES
    parser.add_argument("name", nargs="?", metavar="DOCUMENT", help="as `watcher schema` lists it; without: the list")
    add_format(parser)


def run(values: argparse.Namespace, console: Console) -> int:
    """List the kinds of documents, or show one; no store is looked at."""
    from watcherml.api import schema
    from watcherml.report.text_schema import text_schema, text_schemas

    if values.name is None:
        rows = schema.listing()
        document = {"kind": "schemas", "schemas": rows}
        deliver(values, console, {"text": lambda color: text_schemas(rows, color=color), "json": as_json(document)})
        return 0
    described = schema.description(values.name)
    deliver(
        values,
        console,
        {
            "text": lambda color: text_schema(described, color=color),
            "json": as_json(schema.schema(values.name)),
        },
    )
    return 0
