"""What the search for similar failures and the nearest success costs a capture, in a store of many runs.

Run it as ``python tests/bench/neighbours.py [--runs 1000] [--check]``. It prints medians in milliseconds and the share
of the whole capture; with ``--check`` it fails beyond 75 ms.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time

import watcherml
from watcherml.forensics.capsule import Capsule
from watcherml.forensics.earlier import find
from watcherml.store.storage import Storage

OOM = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is free."
)
CONFIG = {f"group{number}": {f"key{inner}": inner for inner in range(20)} for number in range(10)}
LIMIT_MS = 75


def record(storage: Storage, fails: bool, batch: int) -> str:
    """Record one run of 300 points and return its id."""
    run = watcherml.Run("bench", {**CONFIG, "batch_size": batch}, storage, quiet=True)
    try:
        with run:
            for step in range(100):
                run.log({"loss": 1.0 / (step + 1), "accuracy": 0.5, "lr": 0.1}, step=step)
            if fails:
                raise RuntimeError(OOM)
    except RuntimeError:
        pass
    return run.run_id


def fill(storage: Storage, good: str, bad: str, runs: int) -> None:
    """Copy a success and a failure until there are ``runs`` of each; every tenth capsule holds a long history."""
    with storage.database.writing() as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(runs)")]
        listed = ", ".join(columns)
        for number in range(runs):
            for source in (good, bad):
                chosen = ", ".join(f"'{source}-{number}'" if name == "run_id" else name for name in columns)
                connection.execute(f"INSERT INTO runs ({listed}) SELECT {chosen} FROM runs WHERE run_id = ?", (source,))
            document = connection.execute("SELECT document FROM capsules WHERE run_id = ?", (bad,)).fetchone()[0]
            if number % 10 == 0:
                document = json.dumps({**json.loads(document), "history": "x = 1\n" * 50_000})
            connection.execute(
                "INSERT INTO capsules (run_id, digest, failure_class, subkind, sentence, created_at, document)"
                " SELECT ?, digest, failure_class, subkind, sentence, created_at, ? FROM capsules WHERE run_id = ?",
                (f"{bad}-{number}", document, bad),
            )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--check", action="store_true")
    values = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        storage = Storage(folder)
        good, bad = record(storage, False, 8), record(storage, True, 64)
        fill(storage, good, bad, values.runs)
        last = record(storage, True, 128)
        capsule = Capsule.from_json(storage.evidence.capsule(last)["document"])
        taken = []
        for _ in range(15):
            started = time.perf_counter()
            found = find(capsule, storage.get_run(last), storage)
            taken.append(1_000 * (time.perf_counter() - started))
        median = statistics.median(taken)
        print(f"{values.runs} successes and {values.runs} failures: search {median:.1f} ms (median of {len(taken)}),")
        print(f"{found.failures_looked_at} failures and {found.successes_looked_at} successes looked at")
    if values.check:
        assert median < LIMIT_MS, f"{median:.1f} ms, at most {LIMIT_MS}"


if __name__ == "__main__":
    main()
