"""Reading a big store: lists, points, downsampling and frames beside plain SQL for the same rows, in one run.

    python tests/bench/frames.py [--runs 10000] [--points 10000000] [--times 15] [--store FOLDER] [--check 10]

Prints medians in milliseconds and the ratio to the plain form beside each. ``--store`` keeps the store for the next
time; ``--check`` makes the exit code 1 where any ratio is above the number.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import pandas as pd  # noqa: E402 - the checkout's own package comes first
from big_store import fill  # noqa: E402

from watcherml import frames  # noqa: E402
from watcherml.store import points  # noqa: E402
from watcherml.store.storage import Storage  # noqa: E402

Pair = tuple[Callable[[], Any], Callable[[], Any]]


def pairs(storage: Storage) -> dict[str, Pair]:
    """Return what is measured: ours and the plain form, by name."""
    path = storage.database.path
    with closing(sqlite3.connect(path)) as connection:
        ids = [row[0] for row in connection.execute("SELECT run_id FROM runs ORDER BY started_at DESC LIMIT 10")]
        ranges = {
            row[0]: (row[1], row[2])
            for row in connection.execute("SELECT run_id, first_point, last_point FROM metric_ranges")
        }
    one = ids[-1]
    kept = sqlite3.connect(path)
    marks = ", ".join("?" * len(ids))

    def plain(text: str, values: Any = ()) -> Callable[[], list[Any]]:
        def read() -> list[Any]:
            with closing(sqlite3.connect(path)) as connection:
                return connection.execute(text, values).fetchall()

        return read

    by_rowid = "SELECT m.key, m.step, m.value, m.at FROM metrics m WHERE m.rowid BETWEEN ? AND ?"
    long_form = (
        "SELECT g.run_id, n.name, m.step, m.value FROM metric_ranges g"
        " CROSS JOIN metrics m ON m.rowid BETWEEN g.first_point"
        " AND g.last_point JOIN metric_names n ON n.source_id = g.source_id AND n.key = m.key WHERE g.run_id"
    )
    return {
        "list 100 runs": (
            lambda: storage.list_runs(limit=100),
            plain("SELECT * FROM runs ORDER BY started_at DESC LIMIT 100"),
        ),
        "list 100 killed runs of a project": (
            lambda: storage.list_runs("project-2", "killed", 100),
            plain("SELECT * FROM runs WHERE project = 'project-2' AND status = 'killed' LIMIT 100"),
        ),
        "one run's points": (lambda: storage.get_metrics(one), plain(by_rowid, ranges[one])),
        "one run's points, at most 40 a metric": (
            lambda: storage.get_metrics(one, max_points=40),
            plain(by_rowid, ranges[one]),
        ),
        "series of one metric, 50 buckets": (
            lambda: points.series(kept, one, "val_loss", 50),
            lambda: kept.execute(by_rowid, ranges[one]).fetchall(),
        ),
        "frames.runs, 100": (
            lambda: frames.runs(storage, limit=100),
            lambda: pd.read_sql("SELECT * FROM runs ORDER BY started_at DESC LIMIT 100", kept),
        ),
        "frames.metrics of one run": (
            lambda: frames.metrics(one, storage),
            lambda: pd.read_sql(f"{long_form} = ?", kept, params=(one,)),
        ),
        "frames.metrics of 10 runs, wide": (
            lambda: frames.metrics(ids, storage, wide=True),
            lambda: pd.read_sql(f"{long_form} IN ({marks})", kept, params=ids).pivot(
                index=["run_id", "step"], columns="name", values="value"
            ),
        ),
    }


def main() -> int:
    """Build the store, measure in turns, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--points", type=int, default=10_000_000)
    parser.add_argument("--times", type=int, default=15)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--check", type=float)
    values = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        storage = Storage(values.store or Path(folder) / "store")
        if not storage.exists:
            fill(storage, runs=values.runs, points=values.points // values.runs)
        seconds: dict[str, tuple[list[float], list[float]]] = {}
        chosen = pairs(storage)
        for number in range(values.times + 1):
            for name, pair in chosen.items():
                for side, call in enumerate(pair):
                    start = time.perf_counter()
                    call()
                    if number:  # the first time warms up
                        seconds.setdefault(name, ([], []))[side].append(time.perf_counter() - start)
        size = storage.database.path.stat().st_size
    print(
        f"{values.runs:,} runs, {values.points:,} points, {size / 2**20:,.0f} MiB; medians of {values.times}, in turns"
    )
    ratios = {}
    for name, (ours, other) in seconds.items():
        here, there = statistics.median(ours), statistics.median(other)
        ratios[name] = round(here / there, 2)
        print(f"  {name:<40} {here * 1e3:8.2f} ms   plain {there * 1e3:8.2f} ms   {here / there:5.2f}x")
    print(json.dumps(ratios))
    return int(values.check is not None and max(ratios.values()) > values.check)


if __name__ == "__main__":
    sys.exit(main())
