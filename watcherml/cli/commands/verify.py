"""``watcher verify TARGET``: what a result, a plan, an archive of them or a campaign is worth in this store."""

from __future__ import annotations

import argparse

from watcherml.cli.console import Console
from watcherml.cli.shared import add_format, as_json, deliver, storage_of

_EXIT_CODES = """\
exit codes:
  0  on record here and recomputed equal, whatever the verdict is
  1  altered or not readable; the text says where, what was expected and what came
  3  neither a file nor a campaign of this store
  4  consistent, but not on record here: made elsewhere, or by WatcherML 0.1
Of several documents in an archive the worst counts: 1 before 4 before 0."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXIT_CODES
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="a result or plan file, a ZIP archive that holds some, or a campaign's id; where a file has the name of a"
        " campaign, the file is checked",
    )
    add_format(parser)


def run(values: argparse.Namespace, console: Console) -> int:
    """Recompute what the target says from its parts, and return 0 only for what is on record here."""
    from watcherml.api.verify import examine
    from watcherml.report.text_verify import text_verification

    found = examine(values.target, storage_of(values))
    document = found.to_data()
    deliver(
        values,
        console,
        {"text": lambda color: text_verification(document, color=color), "json": as_json(document)},
    )
    return found.exit_code
