"""What WatcherML adds to a notebook's cells: to one that runs out of memory, and to an ordinary one.

    python tests/bench/capture.py [--check] [--rounds N] [--cells N] [--no-torch]

One process with two IPython shells, one of them with the extension, and 1,000 executed cells of history in it. Cells
take turns in the two. Medians: a cell that fails with ``simulated_out_of_memory`` while a run is open (capture of the
capsule, release of the memory, the panel) beside the same failing cell without us; the parts of it; an ordinary cell;
and, in a training loop, what noting the device's memory and the batches adds to a step. ``--check`` asserts the goals
(capture 150 ms, hooks of an ordinary cell 0.3 ms, 2 % of a step); on a busy machine run it again before believing it.
"""

import argparse
import atexit
import contextlib
import gc
import io
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

CAPTURE_MS, HOOKS_MS, STEP_SHARE = 150.0, 0.3, 0.02
STEPS = 200

TRAINING = """
import torch
from torch import nn
from watcherml.simulated.device import simulated_device

def train():
    with simulated_device("24 MiB") as device:
        model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(6)), nn.Linear(256, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with device.host():
            data = [(torch.randn(rows, 256), torch.zeros(rows, dtype=torch.int64)) for rows in [64] * 5 + [4096]]
        for x, y in device.batches(data):
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
"""
WITHOUT_TORCH = """
class Refused(RuntimeError):
    pass

def train():
    held = [bytearray(1000) for _ in range(1000)]
    raise Refused("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.00 GiB of which"
                  " 1.00 GiB is free. Of the allocated memory 13.00 GiB is allocated by PyTorch, and 0 bytes is"
                  " reserved by PyTorch but unallocated.")
"""


def shells(folder):
    """Two shells in one process, the second with the extension."""
    from IPython.core.interactiveshell import InteractiveShell

    os.chdir(folder)
    made = []
    for name in ("bare", "ours"):
        os.environ["IPYTHONDIR"] = str(Path(folder) / name)
        made.append(InteractiveShell(user_ns={}))
    made[1].extension_manager.load_extension("watcherml")
    return made


def timed(shell, code):
    """Wall seconds of one cell; what it prints goes nowhere."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        begin = time.perf_counter()
        shell.run_cell(code, store_history=True)
        return time.perf_counter() - begin


def measured_parts():
    """Let capture and release note what they take; returns the lists that fill up."""
    from watcherml.api import record
    from watcherml.notebook import failures

    parts = {"capture and storing": [], "release": []}

    def note(name, call):
        def noting(*arguments, **options):
            begin = time.perf_counter()
            try:
                return call(*arguments, **options)
            finally:
                parts[name].append(time.perf_counter() - begin)

        return noting

    record.save_capsule = note("capture and storing", record.save_capsule)
    failures.release_frames = note("release", failures.release_frames)
    return parts


def ordinary(bare, ours, rounds):
    """Medians of an ordinary cell in each shell, in seconds."""
    found = [(timed(bare, "x = 1"), timed(ours, "x = 1")) for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*found, strict=True)]


def failing(bare, ours, rounds):
    """Medians of the failing cell in each shell, in seconds; each round has a run of its own."""
    found = []
    for _ in range(rounds):
        plain = timed(bare, "train()")
        gc.collect()
        timed(ours, "run = watcherml.init('bench', {'batch_size': 64})\nrun.join_facts()")
        found.append((plain, timed(ours, "train()")))
    return [statistics.median(column) for column in zip(*found[1:], strict=True)]


def steps(rounds):
    """Medians of a training step alone, and of what is noted beside it (one batch and one step), in seconds."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    from watcherml.recorder.batches import elements_of
    from watcherml.recorder.device_memory import MemoryLog
    from watcherml.simulated.device import simulated_device

    torch.set_num_threads(1)
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(6)), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows = TensorDataset(torch.randn(64 * STEPS, 256), torch.zeros(64 * STEPS, dtype=torch.int64))
    log = MemoryLog(lambda problem: print(problem))
    found = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for x, y in DataLoader(rows, batch_size=64):
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
        alone, batch = (time.perf_counter() - begin) / STEPS, [x, y]
        with simulated_device(None):  # something to read
            begin = time.perf_counter()
            for _ in range(STEPS):
                log._batch(rows, elements_of(batch))
                log._stepped(optimizer)
            found.append((alone, (time.perf_counter() - begin) / STEPS))
    return [statistics.median(column) for column in zip(*found, strict=True)]


def main():
    """Measure and, with --check, fail where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cells", type=int, default=1_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        bare, ours = shells(folder)
        for shell in (bare, ours):
            timed(shell, WITHOUT_TORCH if options.no_torch else TRAINING)
        timed(ours, "import watcherml\nrun = watcherml.init('bench', {})\nrun.finish()")
        for number in range(options.cells):
            timed(ours, f"value_{number} = {number}  # a cell of ordinary length, one of very many\nprint({number})")
        parts = measured_parts()
        plain, with_us = failing(bare, ours, options.rounds)
        added, captured = 1e3 * (with_us - plain), 1e3 * statistics.median(parts["capture and storing"])
        print(f"  failing cell, {options.cells} cells of history: {1e3 * with_us:.1f} ms, bare {1e3 * plain:.1f} ms")
        print(f"  added: {added:.1f} ms ({with_us / plain:.2f}x); capture's goal {CAPTURE_MS:g} ms")
        for name, seconds in parts.items():
            print(f"    {name}: {1e3 * statistics.median(seconds):.1f} ms")
        begin = time.thread_time()
        gc.collect()
        print(f"    (one garbage collection in this process: {1e3 * (time.thread_time() - begin):.1f} ms of CPU)")
        quick, hooked = ordinary(bare, ours, 200)
        hooks = 1e3 * (hooked - quick)
        print(f"  ordinary cell: {1e3 * hooked:.3f} ms, bare {1e3 * quick:.3f} ms")
        print(f"  added: {hooks:.3f} ms, goal {HOOKS_MS:g} ms")
        for shell in (bare, ours):
            atexit.unregister(shell.atexit_operations)  # its history lies in the folder that goes now
            shell.history_manager.end_session()
        os.chdir("/")
    share = 0.0
    if not options.no_torch:
        alone, noting = steps(options.rounds)
        share = noting / alone
        print(f"  noting a batch and a step: {1e6 * noting:.1f} us, {100 * share:.2f} % of a {1e3 * alone:.2f} ms step")
    if options.check:
        assert captured <= CAPTURE_MS, f"{captured:.1f} ms"
        assert share <= STEP_SHARE, f"{share:.3f}"
        assert hooks <= HOOKS_MS, f"{hooks:.3f} ms"


if __name__ == "__main__":
    main()
