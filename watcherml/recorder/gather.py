"""The facts of a run that are collected in the background: git, packages, machine, command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from watcherml.recorder import environment, machine, patch, redact, source
from watcherml.store.storage import Storage


def gather(storage: Storage, run_id: str, folder: Path) -> None:
    """Collect the facts of this process, whose working directory was ``folder``, and put them on record.

    Raises ``StoreError`` if the store refuses them.
    """
    facts: dict[str, Any] = {
        "git": git_facts(storage, folder),
        "environment": environment.collect(),
        "machine": machine.collect(),
        "argv": redact.redact_argv(machine.argv()),
        "working_directory": redact.redact_text(str(folder)),
    }
    storage.runs.note(run_id, facts)


def git_facts(storage: Storage, folder: Path) -> dict[str, Any]:
    """Return the repository's state; its patch is stored once by hash, and ``patch_is`` says whether it is exact."""
    state = source.collect(folder)
    facts: dict[str, Any] = redact.redact_config(dict(state.facts))[0]
    if state.patch:
        data, changed = patch.redact_patch(state.patch, redact.redact_text)
        facts["patch"] = storage.evidence.put_blob(data, "text/x-diff")
        facts["patch_is"] = f"{changed} lines redacted" if changed else "exact"
    return facts


def folder() -> Path:
    """Return the working directory; where it has been deleted, the root."""
    try:
        return Path.cwd()
    except OSError:
        return Path(Path("/").anchor)
