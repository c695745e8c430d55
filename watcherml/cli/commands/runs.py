"""``watcher runs``: list recorded runs, newest first."""

from __future__ import annotations

import argparse

from watcherml.cli.console import Console
from watcherml.cli.lists import list_face
from watcherml.cli.shared import add_format, as_json, deliver, storage_of
from watcherml.options import add_list_flags
from watcherml.store.runs import STATUSES, Row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_list_flags(parser, STATUSES)
    parser.add_argument("--trials", action="store_true", help="also the runs of recovery trials")
    add_format(parser)


def run(values: argparse.Namespace, console: Console) -> int:
    """List the runs; an empty list where there is no store."""
    # The command that people type most loads what it shows and no more: not api.data with the whole campaign layer.
    storage = storage_of(values)
    rows: list[Row] = []
    if storage.exists:
        storage.settle()
        role = None if values.trials else "user"
        rows = storage.runs.listing(project=values.project, status=values.status, role=role, limit=values.limit)
    text = list_face(values, console, storage, rows, _table, "runs")
    deliver(values, console, {"text": text, "json": lambda _color: _json(rows)})
    return 0


def _table(rows: list[Row], *, color: bool, columns: int | None) -> str:
    from watcherml.report.tables import runs_table

    return runs_table(rows, color=color, columns=columns)


def _json(rows: list[Row]) -> str:
    try:
        return as_json({"kind": "runs", "runs": rows})(False)
    except (TypeError, ValueError):
        # What JSON cannot say, such as NaN, is put in words there, and half the package is loaded for it.
        from watcherml.report.documents import runs_document

        return as_json(runs_document(rows))(False)
