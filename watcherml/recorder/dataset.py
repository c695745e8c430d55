"""A dataset's fingerprint: a hash over relative paths and contents, so that moving it changes nothing."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from watcherml.errors import InvalidValue

_CHUNK = 1 << 20


def fingerprint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return ``fingerprint`` (``sha256:<hex>``), ``files`` and ``bytes`` of a file or folder.

    A folder's hash covers each file's path relative to the root, and its bytes; symbolic links that stay inside
    the root are followed. Raises ``InvalidValue`` for a missing path or a folder without files.
    """
    root = Path(path).expanduser()
    if not root.exists():
        raise InvalidValue("dataset path", expected="an existing file or folder", got=str(path)[:300])
    if root.is_file():
        size, content = _hash_file(root)
        return {"fingerprint": f"sha256:{content}", "files": 1, "bytes": size}
    total, count = 0, 0
    whole = hashlib.sha256()
    for relative, found in sorted(_files(root)):
        size, content = _hash_file(found)
        whole.update(f"{relative}\0{size}\0{content}\n".encode("utf-8", "surrogateescape"))
        total += size
        count += 1
    if count == 0:
        raise InvalidValue("dataset path", expected="a folder with at least one file", got=str(path)[:300])
    return {"fingerprint": f"sha256:{whole.hexdigest()}", "files": count, "bytes": total}


def _files(root: Path) -> Iterator[tuple[str, Path]]:
    base = root.resolve()
    seen: set[Path] = set()
    for folder, names, files in os.walk(root, followlinks=True):
        here = Path(folder).resolve()
        if here in seen or not here.is_relative_to(base):
            names.clear()  # a link out of the root, or a circle of links
            continue
        seen.add(here)
        names.sort()  # of two links to one folder the first by name counts, on every file system
        for name in files:
            path = Path(folder) / name
            if path.is_file() and path.resolve().is_relative_to(base):
                yield path.relative_to(root).as_posix(), path


def _hash_file(path: Path) -> tuple[int, str]:
    content = hashlib.sha256()
    size = 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            content.update(chunk)
            size += len(chunk)
    return size, content.hexdigest()


def hash_file(path: str | os.PathLike[str]) -> tuple[int, str]:
    """Return a file's size in bytes and its SHA-256; raises OSError."""
    return _hash_file(Path(path))
