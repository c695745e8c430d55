"""``TrialPaths``: the name of every file of a trial, in one place."""

from __future__ import annotations

from pathlib import Path


class TrialPaths:
    """Files in ``<store>/trials/<trial id>/``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.request = folder / "request.json"
        self.launch = folder / "launch.json"
        self.claim = folder / "claim"
        self.exit = folder / "exit.json"
        self.stdout = folder / "stdout.log"
        self.stderr = folder / "stderr.log"
        self.guard_log = folder / "guard.log"

    @classmethod
    def of(cls, store: Path, trial_id: str) -> TrialPaths:
        """Return the paths of a trial of a store."""
        return cls(store / "trials" / trial_id)

    def report(self, nonce: str) -> Path:
        """Return where the worker writes; the nonce is not known to the entrypoint's environment or arguments."""
        return self.folder / f"report.{nonce}.json"


# Every process of a trial inherits this variable, so that none can hide from the sweep by leaving its session.
MARKER = "WATCHERML_TRIAL"
# The guard's pid, so that a worker whose guard died before it could look does not mistake its new parent for it.
GUARD = "WATCHERML_GUARD"
