"""``watcher resolve RUN_ID``: mark a failure as resolved, or as open again."""

from __future__ import annotations

import argparse

from watcherml.cli.console import Console
from watcherml.cli.shared import add_format, as_json, deliver, storage_of
from watcherml.options import add_resolve_flags, check_resolve

_NOTES = """\
The mark is a note for people: it changes no capsule and no verdict. `watcher failures --unresolved` leaves out what is
marked. A failure that is marked already stays as it is marked; --reopen takes the mark away."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = _NOTES
    parser.add_argument("run_id", metavar="RUN_ID", help="a failed run, as `watcher failures` lists it")
    add_resolve_flags(parser)
    add_format(parser, output=False)


def run(values: argparse.Namespace, console: Console) -> int:
    """Mark the failure and say how it is marked now."""
    from watcherml.api.resolve import resolve
    from watcherml.report.text_failures import text_resolution

    check_resolve(values)
    document = resolve(
        values.run_id, by=values.by, note=values.note, reopen=values.reopen, storage=storage_of(values)
    ).to_data()
    deliver(values, console, {"text": lambda color: text_resolution(document, color=color), "json": as_json(document)})
    return 0
