"""A dataset's fingerprint: a hash over relative paths and contents, so that moving it changes nothing."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from watcherml.errors import InvalidValue
from watcherml.platform import expanded
from watcherml.recorder.file_cache import TreeCache, stamp
from watcherml.recorder.file_tree import Entry, Hashed, Tree, hash_all, shown, unreadable, walk
from watcherml.recorder.file_tree import hash_file as hash_file
from watcherml.recorder.progress import Progress

_MAX_NAMES = 20
# More threads than cores help where the files come from a disk or a network.
_THREADS = min(8, max(2, os.cpu_count() or 2))


def fingerprint(path: str | os.PathLike[str], *, verify: bool = False) -> dict[str, Any]:
    """Return ``fingerprint`` (``sha256:<hex>``), ``files`` and ``bytes`` of a file or folder.

    A file's fingerprint is the SHA-256 of its bytes. A folder's covers each file's path relative to the root, byte
    for byte, and its content, hidden files included, ``.git`` and ``.watcherml`` not. Symbolic links that stay inside
    are followed. Where there are any, ``links_outside`` and ``links_broken`` name links that count by their text
    only, ``links_circular`` and ``special`` (sockets, FIFOs, devices) what does not count, ``changing`` files that
    were written to meanwhile; each lists the first 20 and ``<name>_count`` all.

    A file that looks untouched since an earlier call is not read again, unless ``verify`` is set.

    Raises ``InvalidValue`` for a missing path, a folder without files, and anything that cannot be read.
    """
    root, status = _root(path)
    began_ns = time.time_ns()
    if stat.S_ISDIR(status.st_mode):
        tree = walk(root)
        if not tree.entries:
            raise InvalidValue("dataset path", expected="a folder with at least one file", got=_named(path))
    else:
        folder, name = os.path.split(root)
        tree = Tree([Entry(b"", folder, name, *_marks(status))])
    hashes = _hashes(tree, root, began_ns, verify)
    total = sum(hashed.size for hashed in hashes.values())
    content = _folder_hash(tree.entries, hashes) if stat.S_ISDIR(status.st_mode) else hashes[b""].sha256.hex()
    facts: dict[str, Any] = {"fingerprint": f"sha256:{content}", "files": len(tree.entries), "bytes": total}
    _name(facts, "links_outside", tree.links_outside)
    _name(facts, "links_broken", tree.links_broken)
    _name(facts, "links_circular", tree.links_circular)
    _name(facts, "special", tree.special)
    _name(facts, "changing", (name for name, hashed in hashes.items() if not hashed.steady))
    return facts


def _root(path: str | os.PathLike[str]) -> tuple[str, os.stat_result]:
    """Return the path without links, and what is there."""
    try:
        given = os.fspath(path)
        if not isinstance(given, str):
            given = os.fsdecode(given)
        if not given:
            raise ValueError  # "" would be the working directory
        root = os.path.realpath(expanded(given))
        status = Path(root).stat()
    except TypeError:
        raise InvalidValue("dataset path", expected="a path", got=type(path).__name__) from None
    except (FileNotFoundError, NotADirectoryError, ValueError, RuntimeError):
        raise InvalidValue("dataset path", expected="an existing file or folder", got=_named(path)) from None
    except OSError as error:
        raise unreadable(error, given) from error
    if not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
        raise InvalidValue(
            "dataset path", expected="an existing file or folder", got=f"{_named(path)}, a device, pipe or socket"
        )
    return root, status


def _named(path: object) -> str:
    return repr(str(path))[1:-1][:300] or "an empty text"


def _marks(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _hashes(tree: Tree, root: str, began_ns: int, verify: bool) -> dict[bytes, Hashed]:
    """Return each entry's content, from memory where the file looks untouched."""
    cache = TreeCache(root, began_ns)
    try:
        hashes: dict[bytes, Hashed] = {}
        unread: list[Entry] = []
        folder, known = None, {}
        for entry in tree.entries:
            if entry.link is not None:
                hashes[entry.relative] = Hashed(0, hashlib.sha256(entry.link).digest(), True)
                continue
            if entry.folder != folder and not verify:
                folder, known = entry.folder, cache.known(entry.folder)
            remembered = known.get(os.fsencode(entry.name))
            if remembered is not None and remembered.stamp == stamp(entry):
                hashes[entry.relative] = Hashed(entry.size, remembered.sha256, True)
            else:
                unread.append(entry)
        with Progress("hashing", len(unread), sum(entry.size for entry in unread)) as progress:
            hashes.update(hash_all(unread, progress, cache.save, _THREADS))
    finally:
        cache.close()
    return hashes


def _folder_hash(entries: Iterable[Entry], hashes: dict[bytes, Hashed]) -> str:
    whole = hashlib.sha256()
    for entry in sorted(entries):  # by relative path, which differs for each
        hashed = hashes[entry.relative]
        kind = b"%d" % hashed.size if entry.link is None else b"link"
        whole.update(b"%b\0%b\0%b\n" % (entry.relative, kind, hashed.sha256.hex().encode()))
    return whole.hexdigest()


def _name(facts: dict[str, Any], key: str, names: Iterable[bytes]) -> None:
    found = sorted(names)
    if found:
        facts[key] = [shown(name) for name in found[:_MAX_NAMES]]
        facts[f"{key}_count"] = len(found)
