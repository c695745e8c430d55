"""Logs of a trial with a bound: the head is written as it comes, the tail is kept and added at the end."""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from typing import IO

_CHUNK = 65_536


class CappedLog:
    """Copies a pipe into a file of at most about ``limit_bytes``: first half head, last half tail."""

    def __init__(self, stream: IO[bytes] | None, path: Path, limit_bytes: int) -> None:
        self._stream = stream
        self._path = path
        self._half = limit_bytes // 2
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._dropped = 0
        self._lock = threading.Lock()
        self._finished = False
        self._out = path.open("wb")
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def finish(self, seconds: float = 2.0) -> None:
        """Wait for the pipe's end, but not for ever: somebody outside the trial may still hold it."""
        self._thread.join(seconds)
        with self._lock:
            self._finished = True
            if self._dropped:
                self._out.write(f"\n[... {self._dropped} bytes left out ...]\n".encode())
            for chunk in self._tail:
                self._out.write(chunk)
            self._out.close()
        if self._stream is not None and not self._thread.is_alive():
            self._stream.close()

    def _copy(self) -> None:
        written = 0
        while self._stream is not None:
            try:
                chunk = self._stream.read1(_CHUNK)  # type: ignore[attr-defined]
            except (OSError, ValueError):
                return
            if not chunk:
                return
            with self._lock:
                if self._finished:
                    return
                head = chunk[: max(0, self._half - written)]
                if head:
                    written += len(head)
                    self._out.write(head)
                    self._out.flush()
                self._keep(chunk[len(head) :])

    def _keep(self, chunk: bytes) -> None:
        if not chunk:
            return
        self._tail.append(chunk)
        self._tail_bytes += len(chunk)
        while self._tail_bytes > self._half:
            extra = self._tail_bytes - self._half
            first = self._tail.popleft()
            if len(first) > extra:
                self._tail.appendleft(first[extra:])
            gone = min(extra, len(first))
            self._tail_bytes -= gone
            self._dropped += gone
