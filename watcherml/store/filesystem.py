"""Which kind of file system a folder lies on: whether SQLite's write-ahead log and mapped files are safe there.

Both need memory that is shared through a file. A network file system does not share it between machines, and many FUSE
file systems do not offer it at all (Google Drive in Colab is one).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

MOUNTS = Path("/proc/self/mountinfo")
# Names as the kernel gives them. What starts with "fuse" is a file system in user space: sshfs, gcsfuse, Colab's Drive.
REMOTE_TYPES = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "prl_fs", "smb",
    "smb2", "smb3", "smbfs", "sshfs", "vboxsf", "virtiofs", "vmhgfs",
})  # fmt: skip


class Place(NamedTuple):
    """Where a folder lies: the mount point and the file system's type; "" where the system does not tell."""

    mount: str
    type: str

    @property
    def remote(self) -> bool:
        """Whether files here may be shared with another machine or live in a FUSE process; unknown counts as local."""
        return self.type in REMOTE_TYPES or self.type.startswith("fuse")


UNKNOWN = Place("", "")


def place_of(folder: str | os.PathLike[str]) -> Place:
    """Return where a folder, or the nearest existing parent of it, lies; ``UNKNOWN`` outside Linux."""
    try:
        text = MOUNTS.read_text("utf-8", "surrogateescape")
    except OSError:
        return UNKNOWN
    return find(parse_mountinfo(text), os.path.realpath(folder))


def parse_mountinfo(text: str) -> list[Place]:
    """Return the mounts of a table in the format of ``/proc/self/mountinfo`` (proc(5)), oldest first."""
    found = []
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if separator and len(fields) >= 5 and kind[0]:
            found.append(Place(_unescape(fields[4]), kind[0]))
    return found


def find(mounts: list[Place], path: str) -> Place:
    """Return the mount that an absolute path without links lies on: the longest prefix, the last one of equals."""
    best = UNKNOWN
    for one in mounts:
        inside = path == one.mount or path.startswith(one.mount.rstrip("/") + "/")
        if inside and len(one.mount) >= len(best.mount):
            best = one
    return best


def _unescape(text: str) -> str:
    # The kernel writes blanks, tabs, line ends and backslashes of a mount point as three octal digits.
    for code in ("040", "011", "012", "134"):
        text = text.replace(f"\\{code}", chr(int(code, 8)))
    return text
