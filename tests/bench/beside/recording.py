"""What recording a loop costs with each tracker, and what is left when the process is killed."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.bench.beside.environments import python_of

TRACKERS = ("bare", "watcherml", "tensorboard", "trackio", "wandb", "aim", "mlflow")
NAMES = {"bare": "(no tracker)", "watcherml": "WatcherML", "tensorboard": "TensorBoard", "trackio": "trackio",
         "wandb": "W&B offline", "aim": "Aim", "mlflow": "MLflow (SQLite)"}  # fmt: skip
CHILD = Path(__file__).with_name("trackers.py")
METRICS = 2
KILL_STEPS, KILL_AT, PACE_SECONDS, SETTLE_SECONDS = 100_000, 2_000, 0.001, 3


def ask(python, tracker, what, folder, *rest):
    """Run the child in a folder and return the JSON of its last line."""
    command = [python, str(CHILD), tracker, what, str(folder), *map(str, rest)]
    done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"{tracker} {what} failed:\n{done.stdout[-500:]}\n{done.stderr[-2_000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def environment(folder):
    """Return the environment of a child: it writes nothing outside its folder and asks nobody."""
    return {**os.environ, "HOME": str(folder), "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "PYTHONWARNINGS": "ignore",
            "MLFLOW_DISABLE_TELEMETRY": "true", "AIM_UI_TELEMETRY_ENABLED": "0"}  # fmt: skip


def size_of(folder):
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file() and not path.is_symlink())


def killed(python, tracker):
    """Return (points whose logging had returned when the process was killed, points that can be read afterwards)."""
    with tempfile.TemporaryDirectory() as folder:
        command = [python, str(CHILD), tracker, "log", folder, str(KILL_STEPS), str(PACE_SECONDS)]
        child = subprocess.Popen(command, cwd=folder, env=environment(folder), stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, text=True)  # fmt: skip
        steps = 0
        for line in child.stdout:
            steps = int(line) if line.strip().isdigit() else steps
            if steps >= KILL_AT:
                break
        child.send_signal(signal.SIGKILL)
        child.wait()
        time.sleep(SETTLE_SECONDS)  # what a helper process of the tracker still writes counts
        return METRICS * steps, ask(python, tracker, "count", folder)


def measure(tracker, envs, rounds, steps):
    """Return the medians of some rounds for one tracker."""
    python, found = python_of(tracker, envs), []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            one = ask(python, tracker, "log", folder, steps)
            one["bytes"], one["points"] = size_of(folder), ask(python, tracker, "count", folder)
            found.append(one)
    row = {key: median(one[key] for one in found) for key in found[0]}
    row["version"] = ask(python, tracker, "version", tempfile.gettempdir())
    row["logged"], row["kept"] = (0, 0) if tracker == "bare" else killed(python, tracker)
    return row


def table(rows):
    """Return a Markdown table; a tracker's call and CPU time without what the loop itself takes."""
    bare = rows["bare"]
    lines = ["| tracker | start | one step (2 metrics) | slowest 1 % | CPU a step | on disk | left after SIGKILL |",
             "|---|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    for name, row in rows.items():
        if name == "bare":
            continue
        kept = min(1.0, row["kept"] / row["logged"])
        lines.append(
            f"| {NAMES[name]} {row['version']} | {row['start_s']:.2f} s | {row['call_us'] - bare['call_us']:,.1f} µs"
            f" | {row['call_p99_us']:,.0f} µs | {max(0, row['cpu_us'] - bare['cpu_us']):,.1f} µs"
            f" | {row['bytes'] / 2**20:.1f} MiB | {100 * kept:.1f} % |"
        )
    return "\n".join(lines)


def run(envs, rounds=3, steps=5_000):
    """Measure every tracker and return the table."""
    rows = {}
    for tracker in TRACKERS:
        rows[tracker] = measure(tracker, envs, rounds, steps)
        print(tracker, json.dumps(rows[tracker]), file=sys.stderr)
        if tracker != "bare" and rows[tracker]["points"] != METRICS * steps:
            print(f"{tracker}: {rows[tracker]['points']} of {METRICS * steps} points can be read", file=sys.stderr)
    return table(rows)
