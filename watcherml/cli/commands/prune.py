"""``watcher prune``: take old runs, the working data of trials and leftovers out of the store."""

from __future__ import annotations

import argparse
import math

from watcherml.cli.console import Console
from watcherml.cli.lists import unknown_project
from watcherml.cli.removing import add_consent, remove
from watcherml.cli.shared import add_format, storage_of

_NOTES = """\
A run goes if it matches every flag that is given; with neither --older-than nor --keep no run goes, and what could go
is shown. Runs that campaigns stand on stay. What a crash in the middle of a deletion has left over always goes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = _NOTES
    parser.add_argument("--older-than", type=_days, metavar="DAYS", help="what ended more than so many days ago")
    parser.add_argument("--keep", type=_count, metavar="N", help="keep the newest N runs of each project")
    parser.add_argument("--project", metavar="NAME", help="only this project")
    parser.add_argument(
        "--trials",
        action="store_true",
        help="instead of runs, the runs and folders of the trials of ended campaigns; what is on record of them stays",
    )
    add_consent(parser)
    add_format(parser, output=False)


def run(values: argparse.Namespace, console: Console) -> int:
    """Say what would go, ask, delete it and give the space back."""
    from watcherml.api.prunable import prunable
    from watcherml.api.removal import plan_prune
    from watcherml.report import plain
    from watcherml.report.text_removal import text_prunable

    storage = storage_of(values)
    planned = plan_prune(
        older_than_days=values.older_than,
        keep=values.keep,
        project=values.project,
        trials=values.trials,
        storage=storage,
    )
    note = "" if values.project is None else unknown_project(storage, values.project) or ""
    if values.trials or values.older_than is not None or values.keep is not None or note:
        return remove(values, console, storage, planned, note=plain.finish(plain.wrap(note)) if note else "")
    choices = prunable(storage, values.project)
    return remove(values, console, storage, planned, {"prunable": choices}, text_prunable(choices))


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = math.nan
    if not 0 <= days < 1e6:
        raise argparse.ArgumentTypeError(f"expected a number of days of at least 0, got {text[:40]!r}")
    return days


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 6:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 0, got {text[:40]!r}")
    return int(text)
