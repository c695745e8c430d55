"""Artifacts: references to files with size and SHA-256. Large ones are hashed while training goes on.

A file of more than ``LARGE_BYTES`` gets its row at once and its checksum when a background thread has read it. What is
not done a while after the end of the run goes on for as long as the process lives; a process that ends first leaves the
checksum empty, and the run's facts say why. Nothing else ever reads gigabytes behind somebody's back.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from watcherml.errors import InvalidValue, RunError, StoreError
from watcherml.platform import expanded
from watcherml.recorder import dataset
from watcherml.recorder.life import Problems
from watcherml.recorder.redact import redact_text
from watcherml.simulated.active import format_bytes
from watcherml.store.patience import Patience
from watcherml.store.storage import Storage

LARGE_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 20
_SHOW_EVERY_SECONDS = 0.2
# Key in the run's facts: paths without a checksum, each with the reason.
REASONS = "artifacts_without_checksum"
_PENDING = "still being hashed when the run ended"
_CHANGED = "changed while it was hashed"


@dataclass
class Artifact:
    """One version of a file or folder, as it was when it was logged. A folder's path ends in a slash.

    ``mark`` tells versions apart without reading them: size, time of change and inode of every file.
    """

    path: Path
    mark: tuple[Any, ...]
    size_bytes: int
    row: int = 0
    at: float = field(default=0.0, compare=False)
    checksum: str | None = field(default=None, compare=False)
    done_bytes: int = field(default=0, compare=False)

    @property
    def is_folder(self) -> bool:
        """Whether its checksum is that of a tree, as ``set_dataset`` computes it."""
        return len(self.mark) > 0 and isinstance(self.mark[0], tuple)

    @property
    def shown_path(self) -> str:
        """The path as it is stored; bytes that are no UTF-8 become escapes."""
        text = (str(self.path) + ("/" if self.is_folder else "")).encode("utf-8", "backslashreplace").decode()
        return redact_text(text)

    def to_row(self) -> dict[str, Any]:
        """Return the columns of its row, without the run's id."""
        return {"path": self.shown_path, "size_bytes": self.size_bytes, "sha256": self.checksum, "at": self.at}


def look(path: str | os.PathLike[str]) -> Artifact:
    """Return what is at a path now, without reading it.

    Raises ``InvalidValue`` for something that is no path, for nothing, for an empty folder, and for what is neither
    file nor folder; ``OSError`` where the system does not let it be looked at.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidValue("artifact", expected="a path", got=f"{path!r:.80} ({type(path).__name__})")
    try:
        found = expanded(path).absolute()
        status = found.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
        raise InvalidValue(
            "artifact",
            expected="an existing file or folder",
            got=repr(str(path)[:300]),
            remedy="Log it after it has been written; a relative path counts from the working directory.",
        ) from None
    if stat.S_ISREG(status.st_mode):
        return Artifact(found, _mark(status), status.st_size)
    if not stat.S_ISDIR(status.st_mode):
        raise InvalidValue("artifact", expected="a regular file or a folder", got=repr(str(path)[:300]))
    marks = _tree_marks(found)
    if not marks:
        raise InvalidValue("artifact", expected="a folder with at least one file", got=repr(str(path)[:300]))
    return Artifact(found, marks, sum(one[1] for one in marks))


def _mark(status: os.stat_result) -> tuple[int, ...]:
    return status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev


def _tree_marks(root: Path) -> tuple[Any, ...]:
    found: list[tuple[Any, ...]] = []
    seen: set[tuple[int, int]] = set()
    for folder, folders, names in os.walk(root, followlinks=True):
        here = os.stat(folder)  # noqa: PTH116
        if (here.st_dev, here.st_ino) in seen:
            folders.clear()  # a circle of links
            continue
        seen.add((here.st_dev, here.st_ino))
        for name in names:
            path = os.path.join(folder, name)  # noqa: PTH118 - a checkpoint folder can hold many files
            try:
                status = os.stat(path)  # noqa: PTH116
            except OSError:
                continue  # a dangling link, or gone meanwhile; the comparison afterwards sees the latter
            if stat.S_ISREG(status.st_mode):
                found.append((os.path.relpath(path, root), *_mark(status)))
    return tuple(sorted(found))


class Artifacts:
    """The artifacts of one run: ``log`` records one, ``finish`` waits for checksums under way."""

    def __init__(self, storage: Storage, run_id: str, problems: Problems, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._storage, self.run_id, self._problems = storage, run_id, problems
        self._logged: dict[str, tuple[Any, ...]] = {}
        self._waiting: deque[Artifact] = deque()
        self._current: Artifact | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.RLock()  # a signal's handler may end the run in the middle of a call
        self._reasons: dict[str, str] = {}
        self._finished = self._told = False
        self._refused: list[Artifact] = []  # by the store, for now
        self._all: list[Artifact] = []

    def log(self, found: Artifact) -> None:
        """Put an artifact on record; a path that was logged before and has not changed since adds nothing.

        A large one is hashed by a thread. Raises ``StoreError`` if the store refuses the row, which it gets later.
        """
        with self._lock:
            if self._logged.get(found.shown_path) == found.mark:
                return
        small = found.size_bytes <= LARGE_BYTES
        found.at = self._storage.clock()
        found.checksum = self._checksum(found) if small else None
        with self._lock:
            self._all.append(found)
        try:
            self._put(found)
        finally:
            with self._lock:
                self._logged[found.shown_path] = found.mark
                if not small:
                    self._waiting.append(found)
                    if self._thread is None:
                        self._thread = threading.Thread(target=self._work, name="watcherml-artifacts", daemon=True)
                        self._thread.start()

    def retry(self) -> None:
        """Put on record what the store has refused; raises ``StoreError`` if it still does."""
        while self._refused:
            found = self._refused[0]
            checksum = found.checksum
            self._write(found)
            with self._lock:
                if found.checksum == checksum:  # else it has come meanwhile, and is still to be written
                    self._refused.remove(found)

    def appear_again(self) -> None:
        """Count everything as refused: the store is another one, whose rows have other numbers."""
        with self._lock:
            for found in self._all:
                found.row = 0
            self._refused = list(self._all)

    def refused(self) -> list[dict[str, Any]]:
        """Return the rows that the store has refused until now."""
        return [found.to_row() for found in list(self._refused)]

    def _put(self, found: Artifact) -> None:
        try:
            self._write(found)
        except StoreError:
            with self._lock:
                if not self._is_refused(found):
                    self._refused.append(found)
            raise

    def _is_refused(self, found: Artifact) -> bool:
        return any(one is found for one in self._refused)

    def _write(self, found: Artifact) -> None:
        runs, row = self._storage.runs, found.to_row()
        number, checksum = found.row, row["sha256"]
        if number and (checksum is None or runs.set_checksum(number, self.run_id, row["path"], row["at"], checksum)):
            return
        found.row = runs.add_artifact(self.run_id, row["path"], row["size_bytes"], checksum, row["at"])

    def finish(self, seconds: float, show: bool) -> int:
        """Wait at most ``seconds`` for checksums under way and return how many are left.

        ``show`` draws a progress line on the terminal. What is left goes on, and the run's facts name it.
        """
        deadline = time.monotonic() + seconds
        width = 0
        while (thread := self._thread) is not None and (left := deadline - time.monotonic()) > 0:
            if show and (line := self._progress(left)):
                width = max(width, len(line))
                _draw(line.ljust(width))
            thread.join(min(left, _SHOW_EVERY_SECONDS))
        if width:
            _draw(" " * width + "\r")
        with self._lock:
            self._finished = True
            waiting = [*([self._current] if self._current else []), *self._waiting]
            self._reasons.update({one.shown_path: _PENDING for one in waiting})
        self._tell_reasons()
        return len(waiting)

    def _progress(self, left: float) -> str:
        current = self._current
        if current is None:
            return ""
        more = f" and {len(self._waiting)} more" if self._waiting else ""
        share = 100 * current.done_bytes // max(current.size_bytes, 1)
        return (
            f"WatcherML: checksum of {current.path.name[:40]}{more},"
            f" {share} % of {format_bytes(current.size_bytes)}, {left:.0f} s at most"
        )

    def _work(self) -> None:
        while True:
            with self._lock:
                self._current = self._waiting.popleft() if self._waiting else None
                if self._current is None:
                    self._thread = None
                    return
            with self._patience.used():
                self._problems.safely(self._do_current)

    def _do_current(self) -> None:
        found = self._current
        assert found is not None
        checksum = self._checksum(found)
        with self._lock:
            self._current, found.checksum = None, checksum
            if checksum is not None:
                self._reasons.pop(found.shown_path, None)
            refused = self._is_refused(found)  # then it comes with its checksum later
        if checksum is not None and not refused:
            self._put(found)
        if self._finished:
            self._tell_reasons()

    def _checksum(self, found: Artifact) -> str | None:
        """Return ``sha256:<hex>``; None, counted and with the reason in the run's facts, where there is none."""
        try:
            checksum = _tree_checksum(found) if found.is_folder else _file_checksum(found)
        except (OSError, InvalidValue) as error:
            self._refuse(found, f"could not be read: {type(error).__name__}: {error}")
            return None
        if checksum is None:
            self._refuse(found, _CHANGED)
        return checksum

    def _refuse(self, found: Artifact, reason: str) -> None:
        self._reasons[found.shown_path] = reason[:400]
        self._problems.note(RunError(f"artifact {found.shown_path} has no checksum: it {reason}"))

    def _tell_reasons(self) -> None:
        with self._lock:
            reasons = dict(self._reasons)
        if reasons or self._told:
            self._told = True
            self._problems.safely(lambda: self._storage.runs.note(self.run_id, {REASONS: reasons}))


def _file_checksum(found: Artifact) -> str | None:
    """Hash a file; None if it is no longer the version that was logged, or changes meanwhile."""
    content, found.done_bytes = hashlib.sha256(), 0
    with found.path.open("rb") as stream:
        if _mark(os.fstat(stream.fileno())) != found.mark:
            return None
        while chunk := stream.read(_CHUNK_BYTES):
            content.update(chunk)
            found.done_bytes += len(chunk)
        after = _mark(os.fstat(stream.fileno()))
    return f"sha256:{content.hexdigest()}" if after == found.mark and found.done_bytes == found.size_bytes else None


def _tree_checksum(found: Artifact) -> str | None:
    checksum = str(dataset.fingerprint(found.path)["fingerprint"])
    return checksum if _tree_marks(found.path) == found.mark else None


def _draw(line: str) -> None:
    try:
        sys.stderr.write(f"\r{line}")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass  # a terminal that has gone away
