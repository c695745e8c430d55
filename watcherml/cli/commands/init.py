"""``watcher init``: create the store."""

from __future__ import annotations

import argparse

from watcherml.cli.console import Console
from watcherml.cli.shared import add_format, as_json, deliver, storage_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_format(parser)


def run(values: argparse.Namespace, console: Console) -> int:
    """Create the store, or say that it is there already; an existing one is only checked."""
    from watcherml.report.safe import one_line

    storage = storage_of(values)
    there = storage.exists
    if there:
        with storage.database.reading():
            pass  # raises if the file is something else or a later version's
    else:
        storage.create()
    path = one_line(storage.path)
    sentence = f"{path} is a store already; nothing was changed." if there else f"Created a store in {path}."
    deliver(
        values,
        console,
        {
            "text": lambda _color: sentence,
            "json": as_json({"kind": "store", "path": str(storage.path), "created": not there}),
        },
    )
    return 0
