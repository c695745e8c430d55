"""What recording costs, as ratios within one run of this script.

    python tests/bench/record.py [--check] [--sampler] [--rounds N]

Without flags: one ``log_metric`` call beside appending a tuple to a list, both called likewise, 100,000 calls a round;
``import watcherml`` and the first use of ``watcherml.init`` beside bare Python; the first ``init()``. Medians of the
rounds. ``--sampler`` measures 30 idle seconds of a recorded process with 50 threads instead. ``--check`` asserts the
bounds; on a busy machine run it again before believing it.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
# An installed package has its bytecode; a checkout may not be allowed to write it beside the source.
BYTECODE = tempfile.TemporaryDirectory()
os.environ["PYTHONPYCACHEPREFIX"] = BYTECODE.name
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

CALLS = 100_000
CALL_BOUND, PROCESS_BOUND, SAMPLER_BOUND_PERCENT = 3.0, 8.0, 1.0
IDLE_SECONDS, IDLE_THREADS = 30, 50

# One process a round: wall time of the calls, then CPU time from the first call to the end of the process' own work.
LOOP = """
import sys, tempfile
from time import perf_counter, process_time, sleep, time
values = [1 / (step + 1) for step in range({calls})]
rows = []
def log(n, v, s): rows.append((n, v, s, time()))
finish = lambda: None
if sys.argv[1] == 'watcherml':
    import watcherml
    run = watcherml.Run('bench', {{'lr': 0.1}}, tempfile.mkdtemp(), quiet=True).start()
    run.join_facts()
    sleep(0.5)  # the first sample
    log, finish = run.log_metric, run.finish
    cpu = process_time()
else:
    cpu = process_time()
begin = perf_counter()
for step in range({calls}):
    log('loss', values[step], step)
call = perf_counter() - begin
finish()
print(call, process_time() - cpu)
"""

SAMPLER = """
import sys, tempfile, threading, time
stop = threading.Event()
for _ in range({threads}): threading.Thread(target=stop.wait, daemon=True).start()
run = None
if sys.argv[1] == 'watcherml':
    import watcherml
    run = watcherml.Run('bench', {{}}, tempfile.mkdtemp(), quiet=True).start()
    run.join_facts()
time.sleep(1)
cpu, begin = time.process_time(), time.perf_counter()
time.sleep({seconds})
print(100 * (time.process_time() - cpu) / (time.perf_counter() - begin))
print(len(run.storage.runs.samples(run.run_id)) if run else 0)
"""

FIRST_INIT = """
import tempfile, time
import watcherml
folder = tempfile.mkdtemp()
begin = time.perf_counter()
run = watcherml.init('bench', {'lr': 0.1}, folder)
print(time.perf_counter() - begin)
begin = time.perf_counter()
second = watcherml.init('bench', {'lr': 0.1}, folder)
print(time.perf_counter() - begin)
second.interrupt('bench'), run.interrupt('bench')
"""


def child(code, *arguments):
    """Run code in a fresh process; returns the numbers that it prints."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=folder, capture_output=True, text=True, check=True, env={**os.environ, "TMPDIR": folder},
        )  # fmt: skip
    return [float(word) for word in done.stdout.split()]


def wall(code):
    """Seconds that a fresh process takes for the code."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    return time.perf_counter() - begin


def calls(rounds):
    """Medians of call and process time, plain and recorded, in seconds for all calls; the rounds take turns."""
    code = LOOP.format(calls=CALLS)
    plain, recorded = [], []
    for _ in range(rounds):
        plain.append(child(code, "plain"))
        recorded.append(child(code, "watcherml"))
    return [statistics.median(column) for rows in (plain, recorded) for column in zip(*rows, strict=True)]


def starts(rounds):
    """Medians of the wall time of bare Python, the import and the first use of init, in seconds."""
    codes = ["pass", "import watcherml", "import watcherml; watcherml.init"]
    wall(codes[-1])  # writes the bytecode
    found = [[wall(code) for code in codes] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*found, strict=True)]


def row(what, ours, beside, bound=None):
    ratio = ours / beside
    limit = "" if bound is None else f"   bound {bound:g}x"
    print(f"  {what:<44} {1e3 * ours:>10.3f} ms {1e3 * beside:>10.3f} ms {ratio:>7.2f}x{limit}")
    return bound is None or ratio <= bound


def record(rounds):
    """Print the table; returns whether all bounds hold."""
    plain_call, plain_cpu, our_call, our_cpu = calls(rounds)
    bare, imported, used = starts(rounds)
    first = [child(FIRST_INIT) for _ in range(rounds)]
    print(f"  {'medians of ' + str(rounds) + ' rounds':<44} {'watcherml':>13} {'beside':>13}    ratio")
    held = row(f"{CALLS:,} log_metric calls / list appends", our_call, plain_call, CALL_BOUND)
    held &= row("the same, CPU of the process to finish()", our_cpu, plain_cpu, PROCESS_BOUND)
    row("import watcherml / bare Python", imported, bare)
    row("import watcherml; watcherml.init / bare Python", used, bare)
    row("first init() / bare Python", statistics.median(one for one, _ in first), bare)
    row("second init() / bare Python", statistics.median(one for _, one in first), bare)
    return held


def sampler():
    """Print the sampler's share of one core over idle time; returns whether the bound holds."""
    code = SAMPLER.format(threads=IDLE_THREADS, seconds=IDLE_SECONDS)
    (idle, _), (recorded, samples) = child(code, "plain"), child(code, "watcherml")
    print(f"  {IDLE_SECONDS} s idle with {IDLE_THREADS} threads, percent of one core:")
    print(f"  {idle:.3f} bare, {recorded:.3f} with {int(samples)} samples; bound {SAMPLER_BOUND_PERCENT:g} more")
    return recorded - idle < SAMPLER_BOUND_PERCENT


def main():
    """Measure and, with --check, fail where a bound does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--sampler", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    held = sampler() if options.sampler else record(options.rounds)
    if options.check:
        assert held, "a bound does not hold"


if __name__ == "__main__":
    main()
