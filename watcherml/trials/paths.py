"""``TrialPaths``: the name of every file of a trial, in one place."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from pathlib import Path
from typing import IO

from watcherml.platform import make_private_dir, write_atomically

# A report of a thousand metrics and some thousand files of code has about a megabyte.
MAX_REPORT_BYTES = 32 * 2**20


class TrialPaths:
    """Files in ``<store>/trials/<trial id>/``.

    ``mark`` is what every process of the trial carries: its id and its store's place, because two stores of a machine
    may each hold a campaign of one name, and neither may end the other's trials.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        where = os.path.realpath(folder.parent)
        self.mark = f"{folder.name}@{hashlib.sha256(os.fsencode(where)).hexdigest()[:12]}"
        self.request = folder / "request.json"
        self.launch = folder / "launch.json"
        self.claim = folder / "claim"
        self.exit = folder / "exit.json"
        self.stdout = folder / "stdout.log"
        self.stderr = folder / "stderr.log"
        self.guard_log = folder / "guard.log"
        self.outputs = folder / "outputs"

    @classmethod
    def of(cls, store: Path, trial_id: str) -> TrialPaths:
        """Return the paths of a trial of a store."""
        return cls(store / "trials" / trial_id)

    def make(self) -> None:
        """Make the folder, empty; ``OSError`` where what stands there cannot be removed.

        Ids of trials can be foreseen: an earlier trial may have left a link, a pipe that nobody writes to, or modules
        that Python would take for its own. No two trials have one id, so nothing there is anybody's result.
        """
        if self.folder.is_dir() and not self.folder.is_symlink():
            shutil.rmtree(self.folder)
        self.folder.unlink(missing_ok=True)
        make_private_dir(self.folder.parent)
        self.folder.mkdir(mode=0o700)

    def drop_outputs(self) -> None:
        """Remove what training saved by ``output_directory``; what cannot be removed stays."""
        shutil.rmtree(self.outputs, ignore_errors=True)

    def report(self, nonce: str) -> Path:
        """Return where the worker writes; nothing of the process shows the nonce while the entrypoint runs."""
        return self.folder / f"report.{nonce}.json"

    def write_exit(self, data: bytes) -> None:
        """Write ``exit.json``, whatever the entrypoint has put in its place or done to its folder."""
        try:
            write_atomically(self.exit, data)
        except OSError:
            if self.folder.is_symlink() or not self.folder.is_dir():
                with contextlib.suppress(OSError):
                    self.folder.unlink()
                make_private_dir(self.folder)
            self.folder.chmod(0o700)
            if self.exit.is_dir() and not self.exit.is_symlink():
                shutil.rmtree(self.exit, ignore_errors=True)
            write_atomically(self.exit, data)


def open_plain(path: Path) -> IO[bytes]:
    """Open a regular file of a trial's folder for reading.

    Raises ``OSError`` for a link, a pipe or a folder: an entrypoint may have put it there so that whoever reads it
    waits for ever, or reads something else.
    """
    extra = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, os.O_RDONLY | extra)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path.name} is not a regular file")
    return os.fdopen(descriptor, "rb")


def read_plain(path: Path, limit_bytes: int = MAX_REPORT_BYTES) -> bytes:
    """Return what a regular file holds; ``OSError`` as for ``open_plain``, and for more than ``limit_bytes``."""
    with open_plain(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > limit_bytes:
            raise OSError(f"{path.name} has {size} bytes, more than {limit_bytes}")
        return stream.read(limit_bytes + 1)


# Every process of a trial inherits this variable, so that none can hide from the sweep by leaving its session.
MARKER = "WATCHERML_TRIAL"
# The guard's pid, so that a worker whose guard died before it could look does not mistake its new parent for it.
GUARD = "WATCHERML_GUARD"
