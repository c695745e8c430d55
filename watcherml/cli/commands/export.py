"""``watcher export RUN_ID``: a run with its evidence in one checksummed ZIP."""

from __future__ import annotations

import argparse

from watcherml.cli.console import Console
from watcherml.cli.shared import add_format, as_json, deliver, storage_of
from watcherml.options import add_file_flags


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("run_id", metavar="RUN_ID", help="as `watcher runs` lists it")
    add_file_flags(parser, "watcher-RUN_ID.zip")
    add_format(parser, output=False)


def run(values: argparse.Namespace, console: Console) -> int:
    """Write the archive and say what is in it."""
    from watcherml.api.archive import export_run
    from watcherml.report.text_archive import text_export

    document = export_run(values.run_id, values.out, storage=storage_of(values), force=values.force).to_data()
    deliver(values, console, {"text": lambda color: text_export(document, color=color), "json": as_json(document)})
    return 0
