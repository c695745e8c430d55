"""Everything that differs from a commit, untracked files included, as one patch that ``git apply`` takes.

The work is done on a copy of the index; untracked files get entries in it without a content, so that git reads them
from the working tree. Index, objects and working tree of the user are only read, no object is made.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from watcherml.recorder.file_tree import hash_file
from watcherml.recorder.git import Git, GitFailed

MAX_UNTRACKED_FILE_BYTES = 1_000_000
MAX_UNTRACKED_BYTES = 20_000_000
MAX_UNTRACKED_FILES = 10_000
MAX_TRACKED_FILE_BYTES = 20_000_000
MAX_HASHED_BYTES = 1_000_000_000
MAX_LISTED = 50
TEMPORARY_PREFIX = "watcherml-git-"

# Our own store changes while a run is going on; it is not the code. Pathspecs, relative to the top folder.
_OWN = tuple(
    f":(exclude,glob)**/{name}{rest}" for name in (".watcherml", f"{TEMPORARY_PREFIX}*") for rest in ("", "/**")
)
# Notebooks carry their outputs; what ran in them is on record as cells.
_NOTEBOOK = ".ipynb"
_GITLINK = b"160000"
_SECRET_NAMES = (
    ".env", ".netrc", ".pypirc", ".npmrc", ".git-credentials", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519",
)  # fmt: skip
_SECRET_ENDINGS = (".pem", ".key", ".p12", ".pfx", ".kdbx", ".jks", ".keystore")
_DIFF = (
    "--binary", "--full-index", "-M", "-l200", "--no-color", "--no-ext-diff", "--no-textconv", "--submodule=short",
    "--ignore-submodules=dirty", "--src-prefix=a/", "--dst-prefix=b/", "-U3", "--inter-hunk-context=0",
)  # fmt: skip


@dataclass
class Changes:
    """What was found: the patch, and by name what is not in it."""

    patch: bytes = field(default=b"", repr=False)
    omitted: str = ""  # why there is no patch although something changed
    untracked_files: int = 0  # of those in the patch
    untracked_omitted: str = ""  # why no untracked file was looked at
    left_out: list[dict[str, Any]] = field(default_factory=list)  # the first MAX_LISTED
    left_out_files: int = 0
    left_out_bytes: int = 0
    notebooks: list[str] = field(default_factory=list)
    submodules: list[dict[str, Any]] = field(default_factory=list)

    def any(self) -> bool:
        """Tell whether the code is anything else than the commit; notebooks do not count."""
        return bool(self.patch or self.omitted or self.left_out_files or any(_moved(one) for one in self.submodules))


@dataclass(frozen=True)
class _Index:
    """What the user's index says, beyond the plain entries."""

    hidden: list[str]  # marked "assume unchanged", so that git would not look
    skipped: list[str]  # marked "skip worktree" although the file is there
    unmerged: list[str]
    submodules: list[tuple[str, str]]  # path and commit


def find(git: Git, base: str, temporary: Path) -> Changes:
    """Compare the working tree at the top folder of ``git`` with the commit or tree ``base``.

    ``temporary`` is an empty folder. Raises ``GitFailed`` where git cannot read the repository.
    """
    git = git.within(git.folder, _copied_index(git, temporary))
    found = Changes()
    hasher = _Hasher(git)
    index = _read_index(git)
    _unmark(git, "--no-assume-unchanged", index.hidden)
    _unmark(git, "--no-skip-worktree", index.skipped)
    _take_from_tree(git, [*index.unmerged, *_dropped(git, base)])
    _add_untracked(git, found, hasher)
    # Without this a file that was only touched would be in the patch as an empty change; 1 says that some differ.
    git.run("update-index", "-q", "--refresh", accept=(0, 1))
    too_big = _look_at_tracked(git, base, found, hasher)
    outside = [f":(exclude){'*' + _NOTEBOOK}", *(f":(exclude,literal){path}" for path in too_big)]
    try:
        found.patch = git.run("diff-index", "-p", *_DIFF, base, "--", ".", *_OWN, *outside)
    except GitFailed as error:
        found.omitted = str(error)
    found.submodules = [_submodule(git, path, commit) for path, commit in index.submodules[:MAX_LISTED]]
    return found


def _copied_index(git: Git, temporary: Path) -> dict[str, str]:
    """Copy the index into ``temporary`` and return the variables that make git use the copy."""
    copy = temporary / "index"
    try:
        with (git.folder / git.text("rev-parse", "--git-path", "index")).open("rb") as stream:
            copy.write_bytes(stream.read())
            # Git takes entries as young as the index for possibly changed; a younger copy would hide such changes.
            times = os.fstat(stream.fileno())
        os.utime(copy, ns=(times.st_atime_ns, times.st_mtime_ns))
    except FileNotFoundError:
        pass  # nothing was ever added
    return {"GIT_INDEX_FILE": str(copy)}


def _read_index(git: Git) -> _Index:
    found = _Index([], [], [], [])
    for line in _split(git.run("ls-files", "-v", "-s", "-z")):
        head, _, name = line.partition(b"\t")
        tag, mode, content, stage = head.split(b" ")
        path = os.fsdecode(name)
        if stage != b"0":
            found.unmerged.append(path)
        elif mode == _GITLINK:
            found.submodules.append((path, content.decode()))
        elif tag in b"Ss":
            if _is_there(git.folder, path):
                found.skipped.append(path)
        elif tag.islower():
            found.hidden.append(path)
    return found


def _dropped(git: Git, base: str) -> list[str]:
    """Return what ``git rm --cached`` took out of the index while the file of the commit is still there."""
    gone = git.run("diff-index", "--cached", "--no-renames", "--diff-filter=D", "--name-only", "-z", base)
    return [path for path in map(os.fsdecode, _split(gone)) if _is_there(git.folder, path)]


def _is_there(top: Path, path: str) -> bool:
    """Tell whether git would see a file here: also a broken link counts, but nothing behind a linked folder."""
    if any((top / parent).is_symlink() for parent in Path(path).parents):
        return False
    try:
        mode = (top / path).lstat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def _add_untracked(git: Git, found: Changes, hasher: _Hasher) -> None:
    if git.maybe("config", "--get", "status.showUntrackedFiles") == "no":
        # A home folder under git: everything in it is untracked, and none of it is code.
        found.untracked_omitted = "status.showUntrackedFiles is set to no"
        return
    try:
        listed = git.run("ls-files", "--others", "--exclude-standard", "-z", "--", ".", *_OWN)
    except GitFailed as error:
        found.untracked_omitted = str(error)
        return
    chosen: list[str] = []
    total = 0
    # The smallest first: that brings the most files in, and code is small.
    for size, path, refusal in sorted(_candidates(git.folder, map(os.fsdecode, _split(listed)), found)):
        if not refusal and (total + size > MAX_UNTRACKED_BYTES or len(chosen) == MAX_UNTRACKED_FILES):
            refusal = f"over {MAX_UNTRACKED_BYTES} bytes or {MAX_UNTRACKED_FILES} files of untracked files together"
        if refusal:
            _leave_out(found, hasher, path, "untracked", size, refusal)
        else:
            chosen.append(path)
            total += size
    _take_from_tree(git, chosen)
    found.untracked_files = len(chosen)


def _candidates(top: Path, paths: Iterable[str], found: Changes) -> Iterator[tuple[int, str, str]]:
    """Yield size in bytes, path, and why the file stays out ("" if it may come in)."""
    for path in paths:
        if path.endswith("/"):
            yield 0, path, "a repository of its own"
            continue
        if path.endswith(_NOTEBOOK):
            _note_notebook(found, path)
            continue
        try:
            status = (top / path).lstat()
        except OSError:
            continue  # gone since it was listed
        name = path.rpartition("/")[2].lower()
        if name in _SECRET_NAMES or name.startswith(".env.") or name.endswith(_SECRET_ENDINGS):
            yield status.st_size, path, "its name says that it holds secrets"
        elif status.st_size > MAX_UNTRACKED_FILE_BYTES:
            yield status.st_size, path, f"larger than {MAX_UNTRACKED_FILE_BYTES} bytes"
        elif not stat.S_ISLNK(status.st_mode) and not os.access(top / path, os.R_OK):
            yield status.st_size, path, "not readable"
        else:
            yield status.st_size, path, ""


def _look_at_tracked(git: Git, base: str, found: Changes, hasher: _Hasher) -> list[str]:
    """List changed notebooks, and return the changed files that are too large for a patch."""
    raw = list(
        _split(git.run("diff-index", "--raw", "-z", "--no-abbrev", "--no-renames", "--ignore-submodules=dirty", base))
    )
    rows = [(head.split(b" "), os.fsdecode(name)) for head, name in zip(raw[::2], raw[1::2], strict=True)]
    code = []
    for head, path in rows:
        if path.endswith(_NOTEBOOK):
            _note_notebook(found, path)
        elif head[0] != b":" + _GITLINK and head[1] != _GITLINK:
            code.append((head[2], path))
    before = _sizes(git, [content for content, _ in code])
    too_big = []
    for (_, path), old_size in zip(code, before, strict=True):
        new_size = (git.folder / path).lstat().st_size if _is_there(git.folder, path) else 0
        if max(old_size, new_size) > MAX_TRACKED_FILE_BYTES:
            too_big.append(path)
            state = "changed" if _is_there(git.folder, path) else "deleted"
            _leave_out(found, hasher, path, state, new_size, f"larger than {MAX_TRACKED_FILE_BYTES} bytes")
    return too_big


def _sizes(git: Git, contents: list[bytes]) -> list[int]:
    """Return the size in bytes of each object, 0 for one that is not there."""
    if not contents:
        return []
    answer = git.run("cat-file", "--batch-check=%(objectsize)", stdin=b"\n".join(contents) + b"\n")
    return [int(line) if line.isdigit() else 0 for line in answer.splitlines()]


def _submodule(git: Git, path: str, recorded: str) -> dict[str, Any]:
    """Name a submodule with the commit of the index, the one checked out, and whether it was changed."""
    facts: dict[str, Any] = {"path": shown(path), "recorded": recorded, "commit": None, "dirty": None}
    inside = git.within(git.folder / path)
    if (inside.folder / ".git").exists():  # else git would answer for the repository around it
        facts["commit"] = inside.maybe("rev-parse", "--verify", "-q", "HEAD")
        status = inside.maybe("status", "--porcelain", "-z", "--", ".", *_OWN)
        facts["dirty"] = None if status is None else bool(status)
    return facts


def _moved(submodule: dict[str, Any]) -> bool:
    return bool(submodule["dirty"]) or submodule["commit"] not in (None, submodule["recorded"])


def _leave_out(found: Changes, hasher: _Hasher, path: str, state: str, size: int, reason: str) -> None:
    found.left_out_files += 1
    found.left_out_bytes += size
    if len(found.left_out) >= MAX_LISTED:
        return
    facts: dict[str, Any] = {"path": shown(path), "state": state, "reason": reason, "bytes": size}
    if path.endswith("/"):
        facts["commit"] = hasher.git.within(hasher.git.folder / path).maybe("rev-parse", "--verify", "-q", "HEAD")
    elif "secrets" not in reason:  # the hash of a short secret gives it away
        facts["sha256"] = hasher.hash(path, size)
    found.left_out.append(facts)


class _Hasher:
    """Hashes files that stay out of the patch, up to a number of bytes in all."""

    def __init__(self, git: Git) -> None:
        self.git = git
        self._left = MAX_HASHED_BYTES

    def hash(self, path: str, size: int) -> str | None:
        """Return the SHA-256, None where the file is unreadable or the budget or time is used up."""
        if size > self._left or self.git.seconds_left() < 5 or not _is_there(self.git.folder, path):
            return None
        self._left -= size
        try:
            return hash_file(self.git.folder / path)[1]
        except OSError:
            return None


def _note_notebook(found: Changes, path: str) -> None:
    if len(found.notebooks) < MAX_LISTED:
        found.notebooks.append(shown(path))


def _unmark(git: Git, option: str, paths: list[str]) -> None:
    if paths:
        git.run("update-index", option, "-z", "--stdin", stdin=b"".join(os.fsencode(path) + b"\0" for path in paths))


def _take_from_tree(git: Git, paths: list[str]) -> None:
    """Let the index say of these paths what the working tree says; their content is looked at later."""
    if not paths:
        return
    empty = git.run("hash-object", "--stdin").strip()  # any name serves that is none of a real content
    rows = (b"%b %b 0\t%b\0" % (_mode(git.folder, path), empty, os.fsencode(path)) for path in paths)
    git.run("update-index", "--add", "--replace", "-z", "--index-info", stdin=b"".join(rows))


def _mode(top: Path, path: str) -> bytes:
    """Return git's mode of a file, ``0`` for none."""
    if not _is_there(top, path):
        return b"0"
    mode = (top / path).lstat().st_mode
    return b"120000" if stat.S_ISLNK(mode) else b"100755" if mode & 0o100 else b"100644"


def _split(data: bytes) -> list[bytes]:
    return data.split(b"\0")[:-1]


def shown(path: str) -> str:
    """Return a path as text that JSON can hold; bytes that are no UTF-8 become ``\\xNN``."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
