"""What watching for the effect of changes costs a step: ``python tests/bench/knobs.py [--check]``.

Steps of a small model with and without the watching, in turns within one run; medians and their ratio. The first steps,
in which every call of a module is looked at, are told apart from the later ones.
"""

from __future__ import annotations

import statistics
import sys
import time

import torch
from torch import nn

from watcherml.trials import watching as module
from watcherml.trials.seen import Seen
from watcherml.trials.watching import Watching

MOST_LOOKING, MOST_AFTER = 1.10, 1.02
ROUNDS, STEPS = 15, 10


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> float:
    begin = time.perf_counter()
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return time.perf_counter() - begin


def main(check: bool) -> None:
    torch.set_num_threads(1)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 4)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(8, 32, 64)
    calls = len(list(model.modules()))
    times: dict[str, list[float]] = {"bare": [], "looking": [], "afterwards": []}
    for _ in range(5):
        step(model, optimizer, x)
    for _ in range(ROUNDS):
        times["bare"] += [step(model, optimizer, x) for _ in range(STEPS)]
        for name, most in (("looking", 10**9), ("afterwards", 1)):
            module.MOST_CALLS = most
            watched = Watching(Seen())
            watched.start()
            first = [step(model, optimizer, x) for _ in range(3)]  # these walk the graph and look at the optimizer
            times[name] += [step(model, optimizer, x) for _ in range(STEPS)]
            watched.stop()
            times.setdefault(f"first of {name}", []).append(first[0])
    bare = statistics.median(times["bare"])
    print(f"{calls} modules, {1000 * bare:.2f} ms a step")
    for name, values in times.items():
        middle = statistics.median(values)
        print(f"{name:20s} {1000 * middle:8.3f} ms  x{middle / bare:.3f}")
    if check:
        assert statistics.median(times["looking"]) <= MOST_LOOKING * bare
        assert statistics.median(times["afterwards"]) <= MOST_AFTER * bare


if __name__ == "__main__":
    main("--check" in sys.argv[1:])
