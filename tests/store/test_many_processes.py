"""Many processes, one fresh store: nobody fails, and no point is missing or there twice."""

import subprocess
import sys
import threading

import pytest

from watcherml.store.storage import Storage

PROCESSES, POINTS = 8, 2_000
WRITER = """
import sys, watcherml
print("ready", flush=True)
sys.stdin.readline()
with watcherml.Run("p", {"i": int(sys.argv[2])}, sys.argv[1], quiet=True) as run:
    for step in range(int(sys.argv[3])):
        run.log_metric(f"loss{sys.argv[2]}", step * 1.0, step)
assert not run.problems, run.problems
"""
READER = """
import select, sys
from watcherml.store.storage import Storage
storage = Storage(sys.argv[1])
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.01)[0]:
    if storage.exists:
        storage.settle()
        storage.list_runs()
"""


def started(code, *words):
    return subprocess.Popen([sys.executable, "-W", "error", "-c", code, *map(str, words)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip


def race(folder):
    """Start all at once on a folder that does not exist, with somebody who looks all the time."""
    reader = started(READER, folder)
    children = [started(WRITER, folder, index, POINTS) for index in range(PROCESSES)]
    for child in [reader, *children]:
        assert child.stdout.readline() == "ready\n"
    errors = {}

    def finish(index, child):
        errors[index] = child.communicate("go\n", timeout=180)[1]

    threads = [threading.Thread(target=finish, args=pair) for pair in enumerate(children)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors["reader"] = reader.communicate("stop\n", timeout=60)[1]
    assert not any(errors.values()), errors
    assert [child.returncode for child in [reader, *children]] == [0] * (PROCESSES + 1)


def check(folder):
    storage = Storage(folder)
    rows = storage.list_runs()
    assert len(rows) == PROCESSES and {row["status"] for row in rows} == {"success"}
    for row in rows:
        points = storage.get_metrics(row["run_id"])
        name = f"loss{storage.get_run(row['run_id'])['config']['i']}"
        assert [(p["name"], p["step"], p["value"]) for p in points] == [(name, i, float(i)) for i in range(POINTS)]
    with storage.database.reading() as connection:
        assert connection.execute("SELECT COUNT(*) FROM metrics").fetchone()[0] == PROCESSES * POINTS
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


@pytest.mark.parametrize("repetition", range(3))
def test_eight_processes_on_a_fresh_store_lose_nothing(tmp_path, repetition):
    race(tmp_path / "s")
    check(tmp_path / "s")


@pytest.mark.long
@pytest.mark.parametrize("repetition", range(20))
def test_eight_processes_on_a_fresh_store_lose_nothing_many_times(tmp_path, repetition):
    race(tmp_path / "s")
    check(tmp_path / "s")


def test_eight_processes_in_the_plain_mode_lose_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("WATCHERML_PLAIN_IO", "1")
    race(tmp_path / "s")
    check(tmp_path / "s")
