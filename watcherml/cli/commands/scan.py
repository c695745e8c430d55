"""``watcher scan``: what in this store still looks like a secret."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import asdict
from typing import Any

from watcherml.cli.console import Console
from watcherml.cli.shared import add_format, as_json, count, deliver, storage_of

DEFAULT_LIMIT = 100
_NOTES = "exit codes: 0 whatever was found; with --check 1 if anything was"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = _NOTES
    parser.add_argument("--limit", type=count, default=DEFAULT_LIMIT, metavar="N",
                        help="findings that are shown (default: %(default)s); all are counted")  # fmt: skip
    parser.add_argument("--check", action="store_true", help="end with 1 if anything was found")
    add_format(parser)


def run(values: argparse.Namespace, console: Console) -> int:
    """Read the whole store and show what looks like a secret."""
    from watcherml.api.scan import scan
    from watcherml.report.text_scan import text_scan

    storage = storage_of(values)
    kinds: Counter[str] = Counter()
    shown: list[dict[str, Any]] = []
    for finding in scan(storage):
        kinds[finding.kind] += 1
        if len(shown) < values.limit:
            shown.append(asdict(finding))
    document = {
        "kind": "scan",
        "store": str(storage.path),
        "count": kinds.total(),
        "kinds": dict(sorted(kinds.items())),
        "findings": shown,
    }
    deliver(values, console, {"text": lambda color: text_scan(document, color=color), "json": as_json(document)})
    return int(bool(values.check and shown))
