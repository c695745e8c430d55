"""Fixtures that many folders share: a store, and a place for an entrypoint."""

import os
from pathlib import Path

import pytest

# Children of the tests find the package even if it is not installed.
ROOT = str(Path(__file__).resolve().parents[1])
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH", "")]))

# Before torch is loaded anywhere: OpenMP threads that spin while they wait starve each other on two cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@pytest.fixture
def storage(tmp_path, monkeypatch):
    """A store in a fresh folder, which is also the working directory."""
    from watcherml.store.storage import Storage

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WATCHERML_DIR", raising=False)
    return Storage(tmp_path / ".watcherml")


OOM_TEXT = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 3.00 MiB is"
    " free. Including non-PyTorch memory, this process has 7.90 GiB memory in use. Of the allocated memory 7.10 GiB"
    " is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
)

# A training function without torch that runs out of memory above batch 16, as far as its text goes.
ENTRYPOINT = f"""
import json, pathlib, time
OOM = {OOM_TEXT!r}

def train(config, max_steps=None):
    steps = config["training_steps"] if max_steps is None else min(max_steps, config["training_steps"])
    time.sleep(config.get("seconds", 0))
    if config["batch_size"] > 16 and not config["gradient_checkpointing"]:
        raise RuntimeError(OOM)
    return {{"steps_completed": steps, "val_loss": 0.4}}

def constant(config, max_steps=None):
    return {{"steps_completed": 50.0, "val_loss": 0.4}}

def idle(config, max_steps=None):
    if config["batch_size"] > 16:
        raise RuntimeError(OOM)
    return {{"val_loss": 0.4}}
"""

CONFIG = {
    "batch_size": 64,
    "gradient_accumulation_steps": 1,
    "gradient_checkpointing": False,
    "training_steps": 50,
}


@pytest.fixture
def failed_run(storage, tmp_path):
    """A recorded run that died of the CUDA out-of-memory text, and ``ent.py`` beside the store."""
    import watcherml

    (tmp_path / "ent.py").write_text(ENTRYPOINT)

    def fail(**changes):
        run = watcherml.Run("demo", {**CONFIG, **changes}, storage, quiet=True)
        with pytest.raises(RuntimeError, match="CUDA out of memory"):
            with run:
                raise RuntimeError(OOM_TEXT)
        return run.run_id

    return fail


@pytest.fixture
def requirements():
    """What the torch-free entrypoint meets."""
    import watcherml

    return watcherml.VerificationRequirements(
        minimum_progress_steps=50, metric_guards=(watcherml.MetricGuard("val_loss", "minimize", 0.42, 0.03),)
    )
