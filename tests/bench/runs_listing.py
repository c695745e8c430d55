"""``watcher runs`` on a big store beside a Python that imports what any such program needs: cold start, in one run.

    python tests/bench/runs_listing.py [--runs 10000] [--points 10000000] [--times 15] [--check 2.0]

The program is started as its installed script starts it. Prints medians in milliseconds and their ratio; ``--check``
makes the exit code 1 where the ratio is above the number.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from big_store import fill  # noqa: E402 - found through the path above

from watcherml.store.storage import Storage  # noqa: E402

# What pip writes as bin/watcher.
SCRIPT = "import sys\nfrom watcherml.cli.main import main\nsys.exit(main())\n"


def timed(command: list[str], environment: dict[str, str]) -> float:
    """Return the seconds that a process takes from its start to its end."""
    start = time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def main() -> int:
    """Build the store, measure in turns, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--points", type=int, default=10_000_000)
    parser.add_argument("--times", type=int, default=15)
    parser.add_argument("--check", type=float)
    values = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store, script = Path(folder) / "store", Path(folder) / "watcher"
        fill(Storage(store), runs=values.runs, points=values.points // values.runs)
        script.write_text(SCRIPT)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "WATCHERML_DIR": str(store)}
        # An installed package has its bytecode; a checkout may not be allowed to write it beside the source.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "bytecode")
        commands = {
            "python -c 'import sqlite3, json, argparse'": [sys.executable, "-c", "import sqlite3, json, argparse"],
            "watcher runs": [sys.executable, str(script), "runs"],
            "watcher runs --format json": [sys.executable, str(script), "runs", "--format", "json"],
            "python -m watcherml runs": [sys.executable, "-m", "watcherml", "runs"],
        }
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(values.times + 1):
            for name, command in commands.items():
                seconds[name].append(timed(command, environment))
    medians = {name: statistics.median(found[1:]) for name, found in seconds.items()}  # the first one warms up
    base = next(iter(medians.values()))
    print(f"{values.runs:,} runs, {values.points:,} points; medians of {values.times}, in turns")
    for name, median in medians.items():
        print(f"  {name:<45} {median * 1e3:8.1f} ms  {median / base:5.2f}x")
    return int(values.check is not None and medians["watcher runs"] > values.check * base)


if __name__ == "__main__":
    sys.exit(main())
