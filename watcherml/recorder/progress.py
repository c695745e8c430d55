"""One line on stderr while something takes long, and only where a person is looking."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

_SILENT_SECONDS = 2.0
_EVERY_SECONDS = 0.2


class Progress:
    """Counts files and bytes of one piece of work and shows them when it takes longer than two seconds.

    Use it as a context manager. Without a terminal or a notebook nothing is ever written.
    """

    def __init__(
        self,
        verb: str,
        files: int,
        size_bytes: int,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._verb, self._files, self._bytes = verb, files, size_bytes
        self._stream = getattr(sys, "stderr", None) if stream is None else stream
        self._clock = clock
        self._watched = is_watched(self._stream)
        self._next = clock() + _SILENT_SECONDS
        self._width = 0
        self._done_files = self._done_bytes = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._width:
            self._write("\r" + " " * self._width + "\r")

    def add(self, files: int, size_bytes: int) -> None:
        """Count work that is done; any thread may call it."""
        with self._lock:
            self._done_files += files
            self._done_bytes += size_bytes

    def show(self) -> None:
        """Write the line again if it is time; called by the thread that owns the work."""
        if not self._watched or self._clock() < self._next:
            return
        self._next = self._clock() + _EVERY_SECONDS
        line = self.line()
        self._write("\r" + line.ljust(self._width))
        self._width = max(self._width, len(line))

    def line(self) -> str:
        """Return the line as it would be shown now."""
        share = self._done_bytes / self._bytes if self._bytes else self._done_files / max(1, self._files)
        percent = min(100, int(100 * share))
        return (
            f"WatcherML: {self._verb} {self._done_files:,} of {self._files:,} files,"
            f" {_size(self._done_bytes)} of {_size(self._bytes)}, {percent} %"
        )

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except Exception:  # noqa: BLE001 - closed, its reader gone, or an object of the script's own
            self._watched = False


def is_watched(stream: TextIO | None) -> bool:
    """Tell whether a stream is a terminal, or a notebook's output."""
    if stream is None:
        return False
    try:
        return type(stream).__module__.startswith("ipykernel.") or bool(stream.isatty())
    except Exception:  # noqa: BLE001 - scripts put objects with nothing but write and flush here
        return False


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
