"""Pages of the web UI over a big store, beside a bare Starlette page with the same bytes, in one run.

    python tests/bench/ui.py [--runs 10000] [--points 1000000] [--long] [--times 15] [--store FOLDER] [--check 200]

Both are asked over a real socket of one real server each. Prints medians in milliseconds with the size and the ratio.
``--long`` takes 10 million points. ``--store`` keeps the store for the next time; ``--check`` makes the exit code 1
where any page takes more milliseconds.
"""

from __future__ import annotations

import argparse
import http.client
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "ui")]

import ui_store  # noqa: E402 - the checkout's own package comes first
import uvicorn  # noqa: E402
from big_store import fill  # noqa: E402
from starlette.applications import Starlette  # noqa: E402
from starlette.requests import Request  # noqa: E402
from starlette.responses import HTMLResponse  # noqa: E402
from starlette.routing import Route  # noqa: E402
from starlette.types import ASGIApp  # noqa: E402

from watcherml.store.storage import Storage  # noqa: E402
from watcherml.ui.app import create_app  # noqa: E402
from watcherml.ui.hosts import bind  # noqa: E402
from watcherml.ui.site import Site  # noqa: E402

LONG_RUN = "one-long-run"


def serve(app: ASGIApp) -> int:
    """Serve an application in a thread and return its port."""
    made = bind("127.0.0.1", 0, allow_remote=False)
    config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off", ws="none", http="h11")
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, kwargs={"sockets": [made]}, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    return int(made.getsockname()[1])


def bare(pages: dict[str, bytes]) -> ASGIApp:
    """Return an application that only answers: the same bytes, from memory."""

    def answer(request: Request) -> HTMLResponse:
        return HTMLResponse(pages[request.query_params["page"]])

    return Starlette(routes=[Route("/", answer)])


def ask(port: int, path: str) -> tuple[float, bytes]:
    """Return the seconds and the bytes of one answer, over a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    start = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    took = time.perf_counter() - start
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.status}")
    return took, body


def add_long_run(storage: Storage, points: int) -> None:
    """Add one run that has ``points`` points of one metric: what a training of days leaves."""
    with storage.database.writing() as connection:
        last, source = connection.execute(
            "SELECT (SELECT MAX(point) FROM metrics), (SELECT MAX(source_id) FROM metric_sources)"
        ).fetchone()
        connection.execute(
            "INSERT INTO runs (run_id, project, role, status, started_at, ended_at, heartbeat_at, pid, process_started,"
            " boot_id, config, last_step) VALUES (?, 'long', 'user', 'success', 1, 2, 2, 1, 1, 'boot', '{}', ?)",
            (LONG_RUN, points),
        )
        connection.execute("INSERT INTO metric_sources VALUES (?, ?, '1')", (source + 1, LONG_RUN))
        connection.execute("INSERT INTO metric_names VALUES (?, 0, 'loss')", (source + 1,))
        connection.execute(
            "WITH RECURSIVE p(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM p WHERE i + 1 < ?)"
            " INSERT INTO metrics (key, step, value, at) SELECT 0, i, (i * 7919 % 1000) / 1000.0, i * 0.05 FROM p",
            (points,),
        )
        connection.execute(
            "INSERT INTO metric_ranges VALUES (?, ?, ?, ?)", (LONG_RUN, source + 1, last + 1, last + points)
        )


def make(folder: Path, runs: int, points: int) -> Storage:
    """Return a store with so many runs and points, and a few failures and campaigns that are real."""
    storage = Storage(folder / "store")
    if not storage.exists:
        fill(storage, runs=runs, points=points // runs)
        add_long_run(storage, points)
        real, _ = ui_store.full_store(folder / "store-real", folder / "elsewhere")
        del real
    return storage


def paths(storage: Storage) -> dict[str, str]:
    """Return the pages of the big store by name."""
    name = storage.runs.listing(limit=1, offset=100)[0]["run_id"]
    return {
        "overview": "/",
        "projects": "/projects",
        "runs": "/runs",
        "runs, last page": "/runs?page=200",
        "runs of a project that failed": "/runs?project=project-2&status=failed",
        "runs, searched": "/runs?q=run-00123",
        "failures": "/failures",
        "campaigns": "/campaigns",
        "memory": "/memory",
        "guide": "/guide",
        "settings": "/settings",
        "one run": f"/runs/{name}",
        "one run with all points again": f"/runs/{LONG_RUN}",
    }


def real_paths(storage: Storage) -> dict[str, str]:
    """Return pages of real evidence by name."""
    verified = next(row for row in storage.audit.campaigns() if row["status"] == "verified")
    return {
        "failure (real)": f"/failures/{verified['source_run_id']}",
        "campaign (real, recomputed)": f"/campaigns/{verified['campaign_id']}",
        "memory (real)": "/memory",
    }


def measure(storage: Storage, chosen: dict[str, str], times: int) -> dict[str, tuple[int, list[float], list[float]]]:
    """Return bytes, seconds of ours and seconds of the bare page, by name; both in turns."""
    ours = serve(create_app(Site(storage)))
    pages = {path: ask(ours, path)[1] for path in chosen.values()}
    plain = serve(bare({str(index): body for index, body in enumerate(pages.values())}))
    found: dict[str, tuple[int, list[float], list[float]]] = {}
    for number in range(times + 1):
        for name, path in chosen.items():
            sides = ask(ours, path)[0], ask(plain, f"/?page={list(pages).index(path)}")[0]
            if number:  # the first time warms up
                _, one, other = found.setdefault(name, (len(pages[path]), [], []))
                one.append(sides[0])
                other.append(sides[1])
    return found


def main() -> int:
    """Build the stores, measure in turns, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--long", action="store_true", help="10 million points")
    parser.add_argument("--times", type=int, default=15)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--check", type=float)
    values = parser.parse_args()
    points = 10_000_000 if values.long else values.points
    with tempfile.TemporaryDirectory() as folder:
        place = values.store or Path(folder)
        storage = make(place, values.runs, points)
        found = measure(storage, paths(storage), values.times)
        real = Storage(place / "store-real")
        found.update(measure(real, real_paths(real), values.times))
        size = storage.database.path.stat().st_size
    print(f"{values.runs:,} runs, {points:,} points and one run with as many again, {size / 2**20:,.0f} MiB\n")
    print(f"{'page':32} {'KiB':>7} {'ms':>8} {'bare ms':>8} {'ratio':>7}")
    slow = []
    for name, (length, one, other) in found.items():
        took, plain = statistics.median(one) * 1000, statistics.median(other) * 1000
        print(f"{name:32} {length / 1024:7.1f} {took:8.1f} {plain:8.2f} {took / plain:7.1f}")
        slow += [name] if values.check is not None and took > values.check else []
    if slow:
        print(f"\nabove {values.check:g} ms: {', '.join(slow)}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
