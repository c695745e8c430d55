"""What each way past an out of memory finds on four workloads, and whether it was right."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.beside.environments import python_of

TOOLS = {"watcherml": "WatcherML", "accelerate": "Accelerate find_executable_batch_size",
         "lightning": "Lightning BatchSizeFinder"}  # fmt: skip
WORKLOADS = {
    "first": "batch too large from the first step",
    "late": "one batch in the middle four times as long",
    "evaluation": "evaluation without no_grad",
    "leak": "gradients of every step kept",
}
# Where only the code can be mended, the right answer is to say so.
NO_ANSWER = ("evaluation", "leak")
CHILD = Path(__file__).with_name("finders.py")


def ask(python, *words):
    with tempfile.TemporaryDirectory() as folder:
        command = [python, str(CHILD), *words[:2], words[2] if len(words) > 2 else folder]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stderr[-2_000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def judged(python, workload, row):
    """Return what became of the answer: a fresh process trains with it, whole."""
    if row["answer"] is None:
        return "names the cause" if row.get("reason") == "no_supported_intervention" else "finds none"
    passes = ask(python, "check", workload, json.dumps(row["answer"]))["passes"]
    if not passes:
        return "fails when trained"
    return "trains, but keeps the mistake" if workload in NO_ANSWER else "trains"


def answer(row, original):
    if row["answer"] is None:
        return "none"
    size, accumulation = row["answer"]["batch_size"], row["answer"].get("gradient_accumulation_steps", 1)
    same = "same" if size * accumulation == original else f"{original} → {size * accumulation}"
    return f"{size} × {accumulation} (effective batch: {same})"


def run(envs):
    """Measure every tool on every workload and return a Markdown table."""
    python = python_of("finders", envs)
    from tests.bench.beside.sizes import FAILING

    lines = ["| workload | tool | answer | when trained | attempts | steps spent | seconds | left in memory |",
             "|---|---|---|---|---:|---:|---:|---:|"]  # fmt: skip
    for workload, words in WORKLOADS.items():
        for tool, name in TOOLS.items():
            row = ask(python, tool, workload)
            outcome = judged(python, workload, row)
            print(tool, workload, outcome, json.dumps(row), file=sys.stderr)
            lines.append(
                f"| {words} | {name} | {answer(row, FAILING[workload])} | {outcome} | {row['attempts']}"
                f" | {row['steps']}"
                f" | {row['seconds']:.0f} | {row['left_bytes'] / 2**20:.1f} MiB |"
            )
    return "\n".join(lines)
