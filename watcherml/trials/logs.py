"""Logs of a trial with a bound: the head is written as it comes, the tail is kept and added at the end.

What a training function prints is a file of the store like any other: secrets are taken out before it is written. A
line is written when it is whole, so that no secret is missed because it came in two pieces.
"""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from watcherml.recorder.redact import redact_text
from watcherml.trials.paths import TrialPaths, open_plain

_CHUNK = 65_536
# Output without any line end is written in pieces of this size.
_LONGEST_LINE = 65_536
# What a person is shown of a log without asking for the file.
_TAIL_LINES = 12
_TAIL_BYTES = 8_192
_SHOWN_WIDTH = 400
# Colours and moves of the cursor, which mean something to a terminal only.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# Outcomes that the report of the worker explains, or that need no explanation.
_EXPLAINED = ("completed", "running", "oom")


class CappedLog:
    """Copies a pipe into a file of at most about ``limit_bytes``: first half head, last half tail."""

    def __init__(self, stream: IO[bytes] | None, path: Path, limit_bytes: int) -> None:
        self._stream = stream
        self._path = path
        self._half = limit_bytes // 2
        self._written = 0
        self._partial = b""  # the end of the head's last line is still to come
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
            tail = b"".join(self._tail)
            if self._dropped:
                self._out.write(_redacted(self._partial))
                self._out.write(f"\n[... {self._dropped} bytes left out ...]\n".encode())
                # The tail may begin within a secret, which no shape tells then.
                start = _line_end(tail[:_LONGEST_LINE].rstrip(b"\r\n"), first=True)
                self._out.write(_redacted(tail[start:]))
            else:
                self._out.write(_redacted(self._partial + tail))
            self._out.close()
        if self._stream is not None and not self._thread.is_alive():
            self._stream.close()

    def _copy(self) -> None:
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
                head = chunk[: max(0, self._half - self._written)]
                if head:
                    self._written += len(head)
                    self._write(head)
                self._keep(chunk[len(head) :])

    def _write(self, head: bytes) -> None:
        """Write the head's whole lines; the rest waits for its end."""
        data = self._partial + head
        end = _line_end(data) or (len(data) if len(data) > _LONGEST_LINE else 0)
        self._partial = data[end:]
        if end:
            self._out.write(_redacted(data[:end]))
            self._out.flush()

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


def tail_of(paths: TrialPaths, lines: int = _TAIL_LINES) -> list[str]:
    """Return the last lines that a trial printed to standard error, or else to standard output; empty if none."""
    return _last_lines(paths.stderr)[-lines:] or _last_lines(paths.stdout)[-lines:]


def both_tails(paths: TrialPaths, lines: int = _TAIL_LINES) -> list[str]:
    """Return the last lines of standard output and then of standard error, ``lines`` in all.

    A progress bar or a warning goes to the second, and must not hide what the training itself prints.
    """
    out, err = _last_lines(paths.stdout), _last_lines(paths.stderr)
    of_err = min(len(err), max(lines // 2, lines - len(out)))
    return out[-(lines - of_err) :] + (err[-of_err:] if of_err else [])


def _last_lines(path: Path) -> list[str]:
    """Return what a terminal would show of the end of a log: of a line that was written over, the last state."""
    try:
        with open_plain(path) as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _TAIL_BYTES))
            text = stream.read(_TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    whole = (line.rstrip().rpartition("\r")[2] for line in _CONTROL.sub("", text).split("\n"))
    return [line[:_SHOWN_WIDTH] for part in whole for line in part.splitlines() if line.strip()]


def with_tails(store: Path, trials: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of trials with ``log_tail``: the last lines of those that failed in a way that needs them."""
    return [
        {**row, "log_tail": [] if row.get("outcome") in _EXPLAINED else tail_of(TrialPaths.of(store, row["trial_id"]))}
        for row in trials
    ]


def _line_end(data: bytes, first: bool = False) -> int:
    """Return the index after the last (or first) line end, 0 if there is none. A progress bar ends in CR only."""
    if first:
        found = [at for at in (data.find(b"\n"), data.find(b"\r")) if at >= 0]
        return min(found) + 1 if found else 0
    return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1


def _redacted(data: bytes) -> bytes:
    # Bytes that are no UTF-8 come back as they were.
    return redact_text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape") if data else data
