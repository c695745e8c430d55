"""Git state of the working directory: commit, branch, and the uncommitted changes as exact bytes."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from watcherml.recorder import changes
from watcherml.recorder.git import Git, GitFailed

# All calls of git together, while training goes on; the end of a run does not wait so long.
TIMEOUT_SECONDS = 15.0


@dataclass(frozen=True)
class SourceState:
    """Facts for the run's row and the patch's bytes (empty without changes or without a repository)."""

    facts: dict[str, Any]
    patch: bytes = field(default=b"", repr=False)


def collect(folder: Path, timeout_seconds: float = TIMEOUT_SECONDS, stop: threading.Event | None = None) -> SourceState:
    """Look at the repository that holds ``folder``; never raises, the facts say why something is absent.

    The patch covers the whole repository and takes a clean checkout of ``commit`` (of nothing, where there is no
    commit yet) to the working tree as it is, but for what ``left_out``, ``notebooks`` and ``submodules`` name.
    Setting ``stop`` ends the looking within a moment, with what has been found by then.
    """
    git = Git(folder, time.monotonic() + timeout_seconds, None, stop)
    try:
        top = Path(git.text("rev-parse", "--show-toplevel"))
        return _state(git.within(top), git.text("rev-parse", "--show-prefix").rstrip("/"))
    except OSError as error:
        return SourceState({"status": "unavailable", "reason": str(error)})


def head_commit(folder: Path) -> str | None:
    """Return the commit that HEAD names, or None."""
    return _head(Git(folder, time.monotonic() + TIMEOUT_SECONDS))


def _head(git: Git) -> str | None:
    return git.maybe("rev-parse", "--verify", "-q", "HEAD^{commit}")


def _state(git: Git, subfolder: str) -> SourceState:
    import tempfile  # slow to import; this runs in the background, after gather.load

    commit = _head(git)
    branch = git.maybe("symbolic-ref", "--short", "-q", "HEAD")
    facts: dict[str, Any] = {
        "status": "available",
        "commit": commit,
        "branch": None if branch is None else changes.shown(branch),
        "subfolder": changes.shown(subfolder),
    }
    try:
        # Without a commit there is nothing to compare with except the empty tree.
        base = commit or git.text("hash-object", "-t", "tree", "--stdin")
        with tempfile.TemporaryDirectory(prefix=changes.TEMPORARY_PREFIX) as temporary:
            found = changes.find(git, base, Path(temporary))
    except (GitFailed, OSError) as error:
        return SourceState({**facts, "dirty": None, "patch_bytes": 0, "patch_omitted": str(error)})
    facts["dirty"] = found.any()
    facts["patch_bytes"] = len(found.patch)
    facts["untracked_files"] = found.untracked_files
    optional = {
        "patch_omitted": found.omitted,
        "untracked_omitted": found.untracked_omitted,
        "left_out": found.left_out,
        "left_out_files": found.left_out_files,
        "left_out_bytes": found.left_out_bytes,
        "notebooks": found.notebooks,
        "submodules": found.submodules,
    }
    facts.update({name: value for name, value in optional.items() if value})
    return SourceState(facts, found.patch)
