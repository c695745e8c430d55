"""WatcherML: records ML runs, says why one failed, and recovers a CUDA out of memory that a verifier confirms.

Public names are loaded on first use, so that ``import watcherml`` costs next to nothing and needs neither torch,
pandas nor IPython.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_HOMES = {
    # recording
    "init": "watcherml.api.record",
    "Run": "watcherml.api.record",
    "Storage": "watcherml.store.storage",
    "phase": "watcherml.recorder.phase",
    "step": "watcherml.recorder.steps",
    "identify": "watcherml.recorder.told",
    "worst_batch": "watcherml.recorder.told",
    "output_directory": "watcherml.recorder.told",
    # failures
    "CAPSULE_SCHEMA_VERSION": "watcherml.forensics.capsule",
    "classify_text": "watcherml.forensics.classify",
    "classify_exception": "watcherml.forensics.classify",
    # recovery
    "TrainingEntrypoint": "watcherml.contract.entrypoint",
    "validate_entrypoint": "watcherml.api.recover",
    "MetricGuard": "watcherml.contract.guards",
    "RecoveryBudget": "watcherml.contract.budget",
    "VerificationRequirements": "watcherml.contract.contract",
    "WorkloadIdentity": "watcherml.contract.identity",
    "InterventionPermissions": "watcherml.contract.permissions",
    "RecoveryContract": "watcherml.contract.contract",
    "RecoveryPreparation": "watcherml.api.recover",
    "RecoveryResult": "watcherml.api.result",
    "prepare_oom_recovery": "watcherml.api.recover",
    "start_recovery": "watcherml.api.recover",
    "run_prepared_recovery": "watcherml.api.recover",
    "recover_from_oom": "watcherml.api.recover",
    "resume_recovery": "watcherml.api.recover",
    # rehearsal
    "simulated_device": "watcherml.simulated.device",
    "host_memory": "watcherml.simulated.active",
}
_MODULES = ("errors", "frames")

__all__ = ["__version__", *_HOMES, *_MODULES, "load_ipython_extension", "unload_ipython_extension"]

if TYPE_CHECKING:
    # Not `import watcherml.errors as errors`, which re-exports nothing to a type checker.
    from watcherml import errors as errors
    from watcherml import frames as frames
    from watcherml.api.record import Run as Run
    from watcherml.api.record import init as init
    from watcherml.api.recover import RecoveryPreparation as RecoveryPreparation
    from watcherml.api.recover import prepare_oom_recovery as prepare_oom_recovery
    from watcherml.api.recover import recover_from_oom as recover_from_oom
    from watcherml.api.recover import resume_recovery as resume_recovery
    from watcherml.api.recover import run_prepared_recovery as run_prepared_recovery
    from watcherml.api.recover import start_recovery as start_recovery
    from watcherml.api.recover import validate_entrypoint as validate_entrypoint
    from watcherml.api.result import RecoveryResult as RecoveryResult
    from watcherml.contract.budget import RecoveryBudget as RecoveryBudget
    from watcherml.contract.contract import RecoveryContract as RecoveryContract
    from watcherml.contract.contract import VerificationRequirements as VerificationRequirements
    from watcherml.contract.entrypoint import TrainingEntrypoint as TrainingEntrypoint
    from watcherml.contract.guards import MetricGuard as MetricGuard
    from watcherml.contract.identity import WorkloadIdentity as WorkloadIdentity
    from watcherml.contract.permissions import InterventionPermissions as InterventionPermissions
    from watcherml.forensics.capsule import CAPSULE_SCHEMA_VERSION as CAPSULE_SCHEMA_VERSION
    from watcherml.forensics.classify import classify_exception as classify_exception
    from watcherml.forensics.classify import classify_text as classify_text
    from watcherml.recorder.phase import phase as phase
    from watcherml.recorder.steps import step as step
    from watcherml.recorder.told import identify as identify
    from watcherml.recorder.told import output_directory as output_directory
    from watcherml.recorder.told import worst_batch as worst_batch
    from watcherml.simulated.active import host_memory as host_memory
    from watcherml.simulated.device import simulated_device as simulated_device
    from watcherml.store.storage import Storage as Storage


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"watcherml.{name}")
    else:
        raise AttributeError(f"module 'watcherml' has no attribute {name!r}")
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """Load the notebook extension: ``%load_ext watcherml``. Loading it again changes nothing."""
    from watcherml.notebook.extension import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Unload the notebook extension: ``%unload_ext watcherml``."""
    from watcherml.notebook.extension import unload

    unload(shell)


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """Tell JupyterLab where the sidebar's assets are and what it is called."""
    return [{"src": "labextension", "dest": "watcherml-lab"}]


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """Tell Jupyter's server which module has the sidebar's endpoints."""
    return [{"module": "watcherml.jupyter"}]
