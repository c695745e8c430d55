"""Git state of the working directory: commit, branch, and the uncommitted changes as exact bytes."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_TIMEOUT_SECONDS = 20.0
_MAX_PATCH_BYTES = 20_000_000
# Outputs of a notebook and our own store change while a run is going on; they are not the code.
_OUTSIDE = (":(exclude)*.ipynb", ":(exclude).watcherml", ":(exclude)watcherml-demo/.watcherml")


@dataclass(frozen=True)
class SourceState:
    """Facts for the run's row and the patch's bytes (empty without changes or without a repository)."""

    facts: dict[str, Any]
    patch: bytes = field(default=b"", repr=False)


def collect(folder: Path) -> SourceState:
    """Look at the repository that holds ``folder``; never raises, the facts say why something is absent."""
    inside = _git(folder, "rev-parse", "--show-toplevel")
    if inside is None:
        return SourceState({"status": "unavailable", "reason": "not inside a git repository, or git is not installed"})
    commit = _git(folder, "rev-parse", "--verify", "-q", "HEAD")
    branch = _git(folder, "symbolic-ref", "--short", "-q", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--untracked-files=normal", "--", ".", *_OUTSIDE)
    # Without a commit there is nothing to compare with except the empty tree.
    base = "HEAD" if commit else "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
    patch = _git(folder, "diff", base, "--binary", "--no-color", "--no-ext-diff", "--", ".", *_OUTSIDE) or b""
    facts: dict[str, Any] = {
        "status": "available",
        "commit": commit.decode().strip() if commit else None,
        "branch": branch.decode("utf-8", "replace").strip() if branch else None,
        "dirty": bool(changed and changed.strip()),
        "patch_bytes": len(patch),
    }
    if len(patch) > _MAX_PATCH_BYTES:
        facts["patch_omitted"] = f"larger than {_MAX_PATCH_BYTES} bytes"
        patch = b""
    return SourceState(facts, patch)


def head_commit(folder: Path) -> str | None:
    """Return the commit that HEAD names, or None."""
    found = _git(folder, "rev-parse", "--verify", "-q", "HEAD")
    return found.decode().strip() if found else None


def _git(folder: Path, *arguments: str) -> bytes | None:
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            env=environment,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None
