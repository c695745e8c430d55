"""Fixtures that many folders share: a store, and a place for an entrypoint."""

import os
import signal
from pathlib import Path

import pytest

# Children of the tests find the package even if it is not installed.
ROOT = str(Path(__file__).resolve().parents[1])
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH", "")]))

# A shell that starts the tests in the background makes them, and every child, deaf to Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Before torch is loaded anywhere: OpenMP threads that spin while they wait starve each other on two cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def pytest_collection_modifyitems(items):
    """Take the adapters last: they load libraries whose objects make each later garbage collection slower."""
    items.sort(key=lambda item: "adapters" in item.path.parts)


@pytest.fixture
def storage(tmp_path, monkeypatch):
    """A store in a fresh folder, which is also the working directory."""
    from watcherml.store.storage import Storage

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WATCHERML_DIR", raising=False)
    return Storage(tmp_path / ".watcherml")


@pytest.fixture
def failed_run(storage, tmp_path):
    """A recorded run that died of the CUDA out-of-memory text, and ``ent.py`` beside the store."""
    from builders import FAILED_CONFIG, OOM_TEXT, TEXT_ENTRYPOINT

    import watcherml

    (tmp_path / "ent.py").write_text(TEXT_ENTRYPOINT)

    def fail(**changes):
        run = watcherml.Run("demo", {**FAILED_CONFIG, **changes}, storage, quiet=True)
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
