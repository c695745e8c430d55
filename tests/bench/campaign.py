"""A campaign's wall time beside the sum of bare processes that do the same steps.

    python tests/bench/campaign.py [--seconds 20] [--torch] [--check]

Each trial sleeps or, with ``--torch``, trains on the simulated device for about ``--seconds`` seconds. The same steps
are then run without us: one plain ``python -c`` a trial, one after another, with the same function, configuration and
device. Printed: both times and the overhead in per cent of the bare time, beside the goal of 5 %. A busy machine makes
both sides slower and the ratio noisy; the load is printed for that reason.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import watcherml

GOAL = 5.0
OOM = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 3.00 MiB is free."
)
PLAIN = f"""
import time
def train(config, max_steps=None):
    steps = config["training_steps"] if max_steps is None else min(max_steps, config["training_steps"])
    for _ in range(steps):
        time.sleep(config["seconds"] / config["training_steps"])
    if config["batch_size"] > 16:
        raise RuntimeError({OOM!r})
    return {{"steps_completed": steps}}
"""
TORCH = """
import time, torch, watcherml
def train(config, max_steps=None):
    steps = config["training_steps"] if max_steps is None else min(max_steps, config["training_steps"])
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    done = 0
    for _ in range(steps):
        until = time.monotonic() + config["seconds"] / config["training_steps"]
        while time.monotonic() < until:  # the same wall time a step on both sides; what differs is what we add
            loss = model(torch.randn(config["batch_size"], 256)).square().mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        done += 1
    return {"steps_completed": done}
"""
BARE = """
import json, sys
config, max_steps, budget = json.loads(sys.argv[1])
from ent import train
if budget:
    import watcherml
    with watcherml.simulated_device(budget):
        train(config, max_steps)
else:
    train(config, max_steps)
"""
BUDGET_BYTES = 24 * 2**20
STEPS = 20


def failed_run(folder: Path, config: dict[str, object], torch: bool) -> tuple[watcherml.Storage, str]:
    """Record the failure that the campaign is for."""
    storage = watcherml.Storage(folder / ".watcherml")
    run = watcherml.Run("bench", config, storage, quiet=True)
    try:
        with run:
            if torch:
                sys.path.insert(0, str(folder))
                from ent import train  # type: ignore[import-not-found]

                with watcherml.simulated_device(BUDGET_BYTES):
                    train({**config, "seconds": 0.1})
            raise RuntimeError(OOM)
    except RuntimeError:
        pass
    return storage, run.run_id


def campaign(folder: Path, config: dict[str, object], torch: bool) -> tuple[watcherml.RecoveryResult, float]:
    """Run the campaign; returns its result and its wall time, from the start of the supervisor to the verdict."""
    storage, run_id = failed_run(folder, config, torch)
    wanted = watcherml.VerificationRequirements(minimum_progress_steps=STEPS, confirmation_runs=2)
    budget = watcherml.RecoveryBudget(max_trials=5, max_probe_trials=2, max_full_trials=1, probe_steps=STEPS)
    made = watcherml.prepare_oom_recovery(run_id, "ent:train", wanted, budget, project_root=folder, storage=storage)
    began = time.monotonic()
    result = watcherml.run_prepared_recovery(made, project_root=folder)
    return result, time.monotonic() - began


def bare(folder: Path, result: watcherml.RecoveryResult, torch: bool) -> list[float]:
    """Run the trials' steps as plain processes, in their order; returns the wall time of each."""
    times = []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    for one in result.trials:
        plan = result.chain.plan
        config = (
            plan.source.to_data()["config"]
            if one.request.proposal_id is None
            else plan.candidate_config(one.request.proposal_id)
        )
        order = json.dumps([config, one.request.max_steps, BUDGET_BYTES if torch else None])
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", BARE, order], cwd=folder, env=environment, check=False,
                       stderr=subprocess.DEVNULL)  # fmt: skip
        times.append(time.monotonic() - began)
    return times


def main() -> int:
    """Measure, print, and with ``--check`` fail above the goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a trial (default: %(default)s)")
    parser.add_argument("--torch", action="store_true", help="train on the simulated device instead of sleeping")
    parser.add_argument("--check", action="store_true", help="exit 1 if the overhead is above the goal")
    values = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="watcherml-bench-") as name:
        folder = Path(name)
        (folder / "ent.py").write_text(TORCH if values.torch else PLAIN)
        size = 1024 if values.torch else 32
        config = {"batch_size": size, "gradient_accumulation_steps": 1, "training_steps": STEPS,
                  "seconds": values.seconds}  # fmt: skip
        before = os.getloadavg()
        result, ours = campaign(folder, config, values.torch)
        theirs = bare(folder, result, values.torch)
    print(f"campaign: {result.status}, {len(result.trials)} trials, {ours:.1f} s")
    for one, alone in zip(result.trials, theirs, strict=True):
        print(
            f"  {one.request.role:<12} {one.result.outcome:<10} {one.result.wall_seconds:7.2f} s, alone {alone:7.2f} s"
        )
    overhead = 100 * (ours / sum(theirs) - 1)
    print(f"bare processes: {sum(theirs):.1f} s; overhead {overhead:.1f} % (goal: at most {GOAL:g} %)")
    print(f"load of the machine: {before[0]:.1f} before, {os.getloadavg()[0]:.1f} after")
    return int(values.check and overhead > GOAL)


if __name__ == "__main__":
    sys.exit(main())
