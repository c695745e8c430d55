"""The demo's folder: made once, used again, and never a place where somebody else's file is overwritten."""

from __future__ import annotations

import hashlib
import json
from importlib import resources
from pathlib import Path

from watcherml.errors import InvalidValue, StoreError
from watcherml.platform import make_private_dir, write_atomically

SOURCE = "demo_char_gpt.py"
MODULE = "char_gpt"
MARKER = ".watcherml-demo.json"


class DemoFolder:
    """The folder with ``char_gpt.py`` and a store. A marker file names what the demo wrote there, by content."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.code = path / f"{MODULE}.py"
        self.store = path / ".watcherml"
        self._marker = path / MARKER

    def make(self, *, keep: bool = False) -> bool:
        """Create the folder or take it up again; returns whether an edited ``char_gpt.py`` is used as it is.

        ``keep`` allows that. Raises ``InvalidValue`` for a folder or file that the demo did not write,
        ``StoreError`` where the system refuses.
        """
        content = resources.files("watcherml.cli").joinpath(SOURCE).read_bytes()
        try:
            self._check_is_ours()
            edited = self.code.exists() and _digest(self.code.read_bytes()) != self._written()
            if edited and self.code.read_bytes() != content:
                if keep:
                    return True
                raise InvalidValue(
                    f"{self.code}",
                    expected="the file as the demo wrote it",
                    got="an edited one",
                    remedy="--keep runs the demo with it; --dir DIR makes a new folder.",
                )
            make_private_dir(self.path)
            write_atomically(self._marker, json.dumps({self.code.name: _digest(content)}).encode())
            write_atomically(self.code, content)
        except OSError as error:
            raise StoreError(f"cannot make the demo's folder {self.path}", got=str(error.strerror)) from error
        return False

    def _check_is_ours(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise InvalidValue("--dir", expected="a folder, or a path that is free", got=f"the file {self.path}")
        if self.path.is_dir() and any(self.path.iterdir()) and not self._marker.is_file():
            raise InvalidValue(
                "--dir",
                expected="an empty folder, or one that an earlier demo made",
                got=str(self.path),
                remedy="Nothing was written. Choose another folder with --dir DIR.",
            )

    def _written(self) -> str | None:
        try:
            return str(json.loads(self._marker.read_text("utf-8"))[self.code.name])
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()
