"""What a database file is, from its first bytes and without opening it: SQLite would make files beside it."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import NamedTuple

from watcherml.store.gate import opened

# The layout is that of https://www.sqlite.org/fileformat.html, section 1.3.
_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_TEXT = frozenset((*range(0x09, 0x0E), *range(0x20, 0x7F)))  # what string.printable holds


class Header(NamedTuple):
    """Fields of a SQLite file's first page; with a write-ahead log, a newer page may still lie in that."""

    application_id: int
    schema: int
    wal: bool


def read_header(path: Path) -> Header | None:
    """Return the header of a SQLite file, None for any other content; raises OSError where it cannot be read."""
    with opened(path) as stream:
        data = stream.read(_HEADER_BYTES)
    if len(data) < _HEADER_BYTES or not data.startswith(_MAGIC):
        return None
    return Header(int.from_bytes(data[68:72], "big"), int.from_bytes(data[60:64], "big"), data[19] == 2)


def what_it_is(path: Path) -> str:
    """Say in a few words what lies at a path."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            return "a folder" if stat.S_ISDIR(found.st_mode) else "a pipe, a socket or a device"
        with opened(path) as stream:
            head = stream.read(_HEADER_BYTES)
    except OSError as error:
        return f"a file that cannot be read ({error.strerror})"
    if not head:
        return "an empty file"
    size = f"{found.st_size:,} bytes"
    if head.startswith(_MAGIC):
        return f"a SQLite database ({size}) that is damaged or cut off"
    if set(head) <= _TEXT:
        return f"a text file ({size}) that begins {head[:24].decode('ascii')!r}"
    return f"a file of another format ({size})"


def beside(path: Path) -> list[Path]:
    """Return the log and the rollback journal of a database that hold something."""
    found = []
    for suffix in ("-wal", "-journal"):
        one = path.with_name(path.name + suffix)
        try:
            if one.stat().st_size:
                found.append(one)
        except OSError:
            continue
    return found
