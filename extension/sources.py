"""The digests of the sidebar's sources and of what was built from them: ``python sources.py`` keeps both.

A test compares them, so that nobody needs node to see that the committed assets are out of date or were edited.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ASSETS = HERE.parent / "watcherml" / "labextension"
KEPT = ASSETS / "sources.sha256"
_FILES = ("package.json", "yarn.lock", "tsconfig.json")
_FOLDERS = ("src", "style")


def digest() -> str:
    """Return the SHA-256 of the names and contents of everything that the assets are built from."""
    found = [HERE / name for name in _FILES]
    found += [path for name in _FOLDERS for path in (HERE / name).rglob("*") if path.is_file()]
    return _digest(found, HERE)


def assets() -> str:
    """Return the SHA-256 of the names and contents of the assets."""
    return _digest((path for path in ASSETS.rglob("*") if path.is_file() and path != KEPT), ASSETS)


def kept() -> list[str]:
    """Return both digests as they were when the assets were built."""
    return KEPT.read_text("ascii").split()


def _digest(paths: Iterable[Path], root: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(paths):
        # Line ends count as one, however a checkout writes them.
        content = hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()
        total.update(f"{path.relative_to(root).as_posix()} {content}\n".encode())
    return total.hexdigest()


if __name__ == "__main__":
    KEPT.write_text(f"{digest()}\n{assets()}\n", "ascii")
