"""A disk that is full: training goes on, one warning, what was refused is counted, and recording goes on with room."""

import json
import os
import subprocess
import sys

import places
import pytest

from watcherml.store.storage import Storage

# 6,000 points and several heartbeats, while the disk is full in the middle third.
TRAINER = """
import json, sys, time, warnings
import watcherml
folder, filler, names = sys.argv[1:4]
def fill():
    stream = open(filler, "wb", buffering=0)
    size = 1 << 16
    while size:
        try:
            stream.write(bytes(size))
        except OSError:
            size //= 2
steps = 0
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    with watcherml.Run("p", {}, folder, run_id="main", quiet=True) as run:
        run.join_facts()
        for step in range(6000):
            if step == 2000:
                fill()
                before = run.problem_count
            if step == 4000:
                import os
                os.unlink(filler)
                during = run.problem_count
                time.sleep(1.1)  # the journal asks for room once a second
            run.log_metric("loss" if names == "one" else f"loss{step}", float(step), step)
            if step % 1000 == 500:
                run._safely(lambda: run.storage.runs.beat(run.run_id, time.time(), run.last_step, None))
            steps += 1
    print(json.dumps({
        "steps": steps, "before": before, "during": during, "after": run.problem_count,
        "told": [str(one.message) for one in told if "WatcherML" in str(one.message)],
    }))
"""


def train(folder, names="one"):
    done = subprocess.run([sys.executable, "-c", TRAINER, folder / "s", folder / "filler", names], capture_output=True,
                          text=True, check=False, timeout=120)  # fmt: skip
    assert done.returncode == 0 and not done.stderr, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("plain", ["0", "1"])
@pytest.mark.parametrize("names", ["one", "many"])
def test_training_goes_on_over_a_full_disk(tmp_path, monkeypatch, plain, names):
    monkeypatch.setenv("WATCHERML_PLAIN_IO", plain)
    with places.mounted(tmp_path / "disk", "3m") as disk:
        told = train(disk, names)
        assert told["steps"] == 6000 and told["before"] == 0 and len(told["told"]) == 1
        assert told["during"] > 0, "what was refused is counted"
        storage = Storage(disk / "s")
        assert storage.get_run("main")["status"] == "success"
        values = [point["value"] for point in storage.get_metrics("main")]
        assert values == sorted(set(values)), "none twice, none out of order"
        assert set(range(2000)) <= {int(value) for value in values}, "what was accepted before is there"
        assert set(range(4000, 6000)) <= {int(value) for value in values}, "recording goes on with room"
        # Every point is either there or counted as refused.
        assert 6000 - len(values) <= told["after"]


def test_a_run_that_starts_on_a_full_disk_trains(tmp_path):
    with places.mounted(tmp_path / "disk", "1m") as disk:
        with (disk / "filler").open("wb", buffering=0) as stream:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while stream.write(bytes(size)):
                        pass
                except OSError:
                    continue
        code = (
            "import sys, warnings, watcherml\n"
            "with warnings.catch_warnings(record=True) as told:\n"
            "    warnings.simplefilter('always')\n"
            "    with watcherml.Run('p', {}, sys.argv[1], quiet=True) as run:\n"
            "        for step in range(100):\n"
            "            run.log_metric('loss', 1.0, step)\n"
            "print(len([one for one in told if 'WatcherML' in str(one.message)]), len(run.problems) > 100)\n"
        )
        done = subprocess.run([sys.executable, "-c", code, disk / "s"], capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == ("1 True\n", "")
        os.unlink(disk / "filler")
        storage = Storage(disk / "s")
        storage.create()
        assert storage.list_runs() == [] and (disk / "s" / ".gitignore").read_text() == "*\n"
        with storage.database.reading() as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
