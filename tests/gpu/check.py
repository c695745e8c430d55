"""What WatcherML relies on of CUDA, checked on a real GPU: ``python tests/gpu/check.py``.

Uses torch, this package and the standard library only; ends within 4 minutes. Where there is no GPU it says why it
is skipped and ends with 0. Prints one JSON line a check with the numbers measured.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

CAP_BYTES = 1 << 30
ENTRYPOINT = """
import torch

def train(config, max_steps=None):
    device = torch.device("cuda")
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(config["cap_bytes"] / total)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.GELU()) for _ in range(8)])
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    steps = config["training_steps"] if max_steps is None else min(max_steps, config["training_steps"])
    loss = torch.zeros(())
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(config["gradient_accumulation_steps"]):
            x = torch.randn(config["batch_size"], 1024, device=device)
            loss = (model(x) - x).pow(2).mean() / config["gradient_accumulation_steps"]
            loss.backward()
        optimizer.step()
    return {"steps_completed": float(steps), "loss": float(loss)}
"""
ALLOCATOR = """
import torch
torch.zeros(1, device="cuda")
from watcherml.trials.observe import _allocator
print(_allocator("expandable_segments:True").state)
"""
CONFIG = {"batch_size": 65536, "gradient_accumulation_steps": 1, "training_steps": 6, "cap_bytes": CAP_BYTES}


def say(check: str, ok: bool, **numbers: object) -> bool:
    """Print one result as a JSON line and return it."""
    print(json.dumps({"check": check, "ok": ok, **numbers}), flush=True)
    return ok


def fail_in_this_process(folder: Path) -> tuple[str, BaseException]:
    """Record a run that runs out of memory under a fraction cap; returns its id and the exception."""
    import watcherml

    sys.path.insert(0, str(folder))
    import gpu_entrypoint  # type: ignore[import-not-found]

    run = watcherml.Run("gpu-check", CONFIG, folder / ".watcherml", quiet=True)
    try:
        with run:
            gpu_entrypoint.train(CONFIG)
    except RuntimeError as error:
        return run.run_id, error
    raise SystemExit("the batch was meant to run out of memory and did not")


def check_classified(folder: Path) -> tuple[bool, str]:
    """A fraction-capped OOM is cuda_out_of_memory, its numbers are parsed, and the memory comes back."""
    import torch

    import watcherml
    from watcherml.forensics.release import release_frames

    run_id, error = fail_in_this_process(folder)
    capsule = watcherml.Storage(folder / ".watcherml").get_capsule(run_id)
    memory = capsule["memory"]
    ok = say(
        "classified", capsule["failure"]["class"] == "cuda_out_of_memory", device=capsule["device"], memory=memory,
        diagnosis=capsule["diagnosis"]["sentence"], message=capsule["failure"]["message"][:600],
    )  # fmt: skip
    ok &= say("parsed", None not in (memory["requested_bytes"], memory["free_bytes"], memory["capacity_bytes"]))
    held = torch.cuda.memory_reserved()
    report = release_frames(error)
    del error
    gc.collect()
    torch.cuda.empty_cache()
    left = torch.cuda.memory_reserved()
    ok &= say("memory back", left < held / 10, reserved_before=held, reserved_after=left, sentence=report.sentence)
    return ok, run_id


def check_measured(folder: Path, run_id: str) -> bool:
    """What the capsule measured of the device: the cap, the snapshot, the model's bytes, the split of NVML."""
    import watcherml

    pieces = {
        one["id"]: one["data"] for one in watcherml.Storage(folder / ".watcherml").get_capsule(run_id)["evidence"]
    }
    failing = pieces["EV-5"]["failing"]
    snapshot, split = failing["snapshot"], failing["nvml"]
    ok = say("cap read back", abs(failing.get("allowed_bytes", 0) - CAP_BYTES) < 2**21, failing=failing)
    ok &= say("snapshot", snapshot["status"] == "available" and snapshot["segments"] > 0, snapshot=snapshot)
    # In a container the driver names other process ids, and then there is no split.
    told = "own_other_bytes" in split or "reason" in split
    ok &= say("split of NVML", told, split=split)
    model = pieces["EV-6"]
    ok &= say("static bytes", model["parameter_bytes"] == 8 * 1024 * 1025 * 4, parameter_bytes=model["parameter_bytes"])
    return ok & say("modes", model["grad_enabled"] is True and model["module_training"] is True)


def check_leak(folder: Path) -> bool:
    """A leak by real training under a cap is named C10, from readings after each step, without any synchronisation."""
    import torch

    import watcherml

    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    run = watcherml.Run("gpu-leak", {"batch_size": 1024}, folder / ".watcherml", quiet=True)
    try:
        with run:
            torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (1 << 29)) / total)
            model, kept = torch.nn.Linear(1024, 1024, device="cuda"), []
            optimizer = torch.optim.SGD(model.parameters(), 1e-3)
            for _ in range(10_000):
                y = model(torch.randn(1024, 1024, device="cuda"))
                loss = y.pow(2).mean()
                loss.backward(retain_graph=True)
                optimizer.step()
                optimizer.zero_grad()
                kept.append(loss)
    except RuntimeError:
        pass
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    capsule = watcherml.Storage(folder / ".watcherml").get_capsule(run.run_id)
    found = [one["id"] for one in capsule["diagnosis"]["sufficient"]]
    history = next(one["data"] for one in capsule["evidence"] if one["id"] == "EV-2")["device_memory"]
    return say("leak", "C10" in found, sufficient=found, headline=capsule["headline"], steps=history["steps"][-3:])


def check_recovered(folder: Path, run_id: str) -> bool:
    """The failure is recovered and verified on CUDA by fresh processes that read their peaks."""
    import watcherml

    started = time.monotonic()
    result = watcherml.recover_from_oom(
        run_id, "gpu_entrypoint:train", watcherml.VerificationRequirements(6, confirmation_runs=1),
        watcherml.RecoveryBudget(
            max_full_trials=1, probe_steps=2, trial_timeout_seconds=60, campaign_timeout_seconds=180
        ),
        project_root=folder, storage=folder / ".watcherml",
    )  # fmt: skip
    peaks = {
        f"{trial.request.role} {trial.request.proposal_id}": (
            trial.result.outcome,
            trial.result.peak.reserved_bytes if trial.result.peak else None,
        )
        for trial in result.trials
    }
    ended_well = [trial for trial in result.trials if trial.result.outcome == "completed"]
    measured = all(trial.result.peak is not None for trial in ended_well)
    ok = say(
        "recovered", result.verified and result.device_kind == "cuda" and measured, sentence=result.sentence,
        peaks=peaks, cap_bytes=CAP_BYTES, seconds=round(time.monotonic() - started, 1),
    )  # fmt: skip
    rooms = [
        (one.limit_bytes, one.headroom_bytes, one.retries, one.other_bytes)
        for one in (trial.result.peak for trial in ended_well)
        if one is not None
    ]
    # The cap is the limit that counts; a peak above it would be no peak.
    within = all(limit is not None and limit <= CAP_BYTES + 2**21 and (left or 0) >= 0 for limit, left, *_ in rooms)
    ok &= say("headroom", bool(rooms) and within, limit_headroom_retries_other=rooms)
    read = {
        f"{trial.request.role} {knob.capability}": (knob.state, knob.observed)
        for trial in ended_well
        for knob in trial.result.knobs
    }
    return ok & say("knobs read back", bool(read) and "in_effect" in {state for state, _ in read.values()}, read=read)


def check_allocator() -> bool:
    """The allocator's own settings tell a set variable from one that is not there, each in a fresh process."""
    states = {}
    for setting in ("expandable_segments:True", ""):
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            environment.pop(name, None)
            if setting:
                environment[name] = setting
        done = subprocess.run(
            [sys.executable, "-c", ALLOCATOR], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        states[setting or "none"] = done.stdout.strip() or done.stderr[-300:]
    expected = {"expandable_segments:True": "in_effect", "none": "not_in_effect"}
    return say("allocator read back", states == expected, states=states)


def main() -> int:
    """Run the checks; 0 if all hold or there is no GPU."""
    try:
        import torch
    except ImportError:
        print("skipped: torch is not installed")
        return 0
    if not torch.cuda.is_available():
        print(f"skipped: torch {torch.__version__} sees no CUDA device here")
        return 0
    say("device", True, name=torch.cuda.get_device_name(0), torch=torch.__version__, cuda=torch.version.cuda)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "gpu_entrypoint.py").write_text(ENTRYPOINT)
        before = os.getcwd()
        os.chdir(folder)
        try:
            ok, run_id = check_classified(folder)
            ok &= check_measured(folder, run_id)
            ok &= check_leak(folder)
            ok &= check_allocator()
            ok &= check_recovered(folder, run_id)
        finally:
            os.chdir(before)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
