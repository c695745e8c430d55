"""A trainer that is killed at any moment has lost no point whose call returned, and its run is called killed."""

import os
import random
import signal
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from watcherml.store.storage import Storage

# Each returned call is counted in a file that is mapped too, so that the count survives the kill as the points do.
TRAINER = """
import mmap, os, sys
import watcherml

counted = mmap.mmap(os.open(sys.argv[2], os.O_RDWR), 8)
run = watcherml.Run("killed", {"lr": 0.1}, sys.argv[1], quiet=True, run_id="killed-run").start()
step = 0
while True:
    run.log_metric("loss" if step % 3 else "accuracy", step / 7, step=step)
    step += 1
    counted[:8] = step.to_bytes(8, "little")
"""


def killed_after(seconds, folder):
    """Start a trainer, kill it, and return the store with the number of points it had been told were taken."""
    folder.mkdir()
    count = folder / "count"
    count.write_bytes(bytes(8))
    trainer = subprocess.Popen([sys.executable, "-c", TRAINER, str(folder / ".watcherml"), str(count)])
    deadline = time.monotonic() + 60
    while struct.unpack("<q", count.read_bytes())[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(seconds)
    os.kill(trainer.pid, signal.SIGKILL)
    assert trainer.wait() == -signal.SIGKILL
    return Storage(folder / ".watcherml"), struct.unpack("<q", count.read_bytes())[0]


def check(seed, moments, folder):
    chosen = random.Random(seed)
    drawn = [(chosen.uniform(0, 2.5), folder / str(number)) for number in range(moments)]
    # Most of a trainer's life here is waiting for its moment: a few at once, each with a store of its own.
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda one: killed_after(*one), drawn))
    for number, (storage, acknowledged) in enumerate(found):
        assert acknowledged > 0
        # Whoever looks first learns it, by either call.
        looked = storage.list_runs()[0] if number % 2 else storage.get_run("killed-run")
        assert looked["status"] == "killed"
        points = storage.get_metrics("killed-run")
        # The call after the last counted one may have returned too.
        assert len(points) in (acknowledged, acknowledged + 1), f"moment {number}"
        assert all(point["step"] == step and point["value"] == step / 7 for step, point in enumerate(points))
        assert {point["name"] for point in points} <= {"loss", "accuracy"}


def test_eight_kills_lose_no_acknowledged_point(tmp_path):
    check(11, 8, tmp_path)


@pytest.mark.long
def test_thirty_kills_lose_no_acknowledged_point(tmp_path):
    check(12, 30, tmp_path)
