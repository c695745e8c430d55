"""The facts of a run that are collected in the background: git, packages, machine, command line."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from watcherml.errors import StoreError
from watcherml.recorder import environment, machine, patch, redact, source
from watcherml.recorder.git import STOPPED
from watcherml.store.gate import inside
from watcherml.store.storage import Storage

# The end of a run waits so long for facts that are still being collected, and so long for those who were told to stop.
END_WAITS_SECONDS = 2.0
_STOPPING_SECONDS = 0.6


class Gathering:
    """Collects the facts of this process in a thread of its own; the end of the run may cut it short.

    ``safely`` makes a call in the thread and turns an error into None.
    """

    def __init__(self, storage: Storage, run_id: str, folder: Path, safely: Callable[[Callable[[], Any]], Any]) -> None:
        self._storage, self._run_id, self._folder, self._safely = storage, run_id, folder, safely
        self._facts: dict[str, Any] = {}
        self._late = threading.Event()
        self._noting = threading.RLock()  # a signal's handler may end the run in the middle of a call
        self._taken = False  # one of the two threads has taken over what is left to do
        self._waited_seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="watcherml-facts", daemon=True)

    def start(self) -> None:
        """Start collecting; raises RuntimeError where the system allows no more threads."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the facts, ``END_WAITS_SECONDS`` in all calls together, then put on record what there is.

        What was not ready says so: ``git`` in its reason, the others by name in ``facts_cut_short``. Raises
        ``StoreError`` if the store refuses them.
        """
        if self._late.is_set() or not self._thread.is_alive():
            return
        before = time.monotonic()
        self._thread.join(max(0.0, END_WAITS_SECONDS - self._waited_seconds))
        self._waited_seconds += time.monotonic() - before
        if not self._thread.is_alive():
            return
        self._late.set()
        self._thread.join(_STOPPING_SECONDS)
        with self._noting:
            if self._taken or not self._thread.is_alive():
                return
            self._taken = True
        facts = {"git": {"status": "unavailable", "reason": STOPPED}, **self._facts}
        missing = [name for name in self._parts() if name not in facts]
        self._storage.runs.note(self._run_id, {**facts, "facts_cut_short": missing} if missing else facts)

    def _run(self) -> None:
        self._safely(load)
        for name, collect in self._parts().items():
            found = self._safely(collect)
            if found is not None:
                self._facts[name] = found
        with self._noting:
            if self._taken:
                return
            self._taken = True
        self._safely(lambda: self._storage.runs.note(self._run_id, self._facts))

    def _parts(self) -> dict[str, Callable[[], Any]]:
        # The one that waits for another program comes last.
        return {
            "argv": lambda: redact.redact_argv(machine.argv()),
            "working_directory": lambda: redact.redact_text(str(self._folder)),
            "environment": environment.collect,
            "machine": machine.collect,
            "git": lambda: git_facts(self._storage, self._folder, self._late),
        }


def load() -> None:
    """Import what the collecting needs and the package itself does not.

    A child that is forked in the middle of an import can never import that module; a fork waits for this one.
    """
    with inside():
        import tempfile  # noqa: F401
        from difflib import SequenceMatcher  # noqa: F401
        from importlib import metadata  # noqa: F401

        # Sorting the keys of canonical JSON loads the codec, which is a module.
        "".encode("utf-16-be")

        import watcherml.store.evidence  # noqa: F401


def git_facts(storage: Storage, folder: Path, stop: threading.Event | None = None) -> dict[str, Any]:
    """Return the repository's state; its patch is stored once by hash, and ``patch_is`` says whether it is exact."""
    state = source.collect(folder, source.TIMEOUT_SECONDS, stop)
    facts: dict[str, Any] = redact.redact_config(dict(state.facts))[0]
    if state.patch:
        data, changed = patch.redact_patch(state.patch, redact.redact_text)
        facts["patch"] = storage.evidence.put_blob(data, "text/x-diff")
        facts["patch_is"] = f"{changed} lines redacted" if changed else "exact"
    return facts


def storage(where: Storage | str | os.PathLike[str] | None) -> Storage:
    """Return the store to record into; where the working directory has been deleted, one that takes nothing."""
    if isinstance(where, Storage):
        return where
    try:
        return Storage(where)
    except StoreError:  # training goes on, and the first write says why nothing is recorded
        return Storage(Path(os.devnull) / "the working directory was deleted")


def folder() -> Path:
    """Return the working directory; where it has been deleted, the root."""
    try:
        return Path.cwd()
    except OSError:
        return Path(Path("/").anchor)
