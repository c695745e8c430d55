"""``watcher pack``: the whole store in one ZIP, taken while others go on writing to it."""

from __future__ import annotations

import argparse

from watcherml.cli.console import Console
from watcherml.cli.shared import add_format, as_json, deliver, storage_of
from watcherml.options import add_file_flags


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_file_flags(parser, "watcherml-store.zip")
    add_format(parser, output=False)


def run(values: argparse.Namespace, console: Console) -> int:
    """Write the archive and say how it is opened."""
    from watcherml.api.archive import pack_store
    from watcherml.report.text_archive import text_pack

    written = pack_store(values.out, storage=storage_of(values), force=values.force)
    document = {
        "kind": "pack",
        "path": str(written.path),
        "size_bytes": written.size_bytes,
        "files": len(written.members),
        "members": written.members,
    }
    deliver(values, console, {"text": lambda color: text_pack(document, color=color), "json": as_json(document)})
    return 0
