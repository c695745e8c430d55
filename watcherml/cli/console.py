"""The terminal: what is said where, in colour or not, and questions to the person at it.

Results go to standard output, warnings, questions and the moving status line to standard error. Every line is
flushed, so that both streams in one file keep their order.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from watcherml.errors import WatcherError

_FRAMES = "|/-\\"
_DEFAULT_WIDTH = 96
_NARROWEST = 40


class Console:
    """Where a command writes. ``json`` keeps standard output free of everything but JSON.

    ``color`` is for results, ``notice_color`` for what goes to standard error: either may be a file.
    """

    def __init__(self, *, quiet: bool = False, no_color: bool = False, json: bool = False) -> None:
        self.quiet = quiet
        self.json = json
        plain = no_color or json or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self.color = not plain and _is_terminal(sys.stdout)
        self.notice_color = not plain and _is_terminal(sys.stderr)
        self._moves = not quiet and not json and os.environ.get("TERM") != "dumb" and _is_terminal(sys.stderr)
        self._frame = 0
        self._shown = False

    @property
    def can_ask(self) -> bool:
        """Whether there is a person to ask: a terminal to read from and one to write the question to."""
        return not self.json and _is_terminal(sys.stdin) and _is_terminal(sys.stderr)

    @property
    def width(self) -> int:
        """The terminal's columns, 96 where there is no terminal."""
        import shutil  # with five archive modules behind it: loaded when a width is asked for

        return max(_NARROWEST, shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns)

    @property
    def room(self) -> int | None:
        """What a line may take: the terminal's columns, None where results go to a file or another program."""
        return self.width if _is_terminal(sys.stdout) else None

    @contextmanager
    def fitting(self) -> Iterator[None]:
        """Have text wrapped to the terminal that results go to, where it is narrower than text usually is."""
        room = self.room
        if room is None or room >= _DEFAULT_WIDTH:
            yield
            return
        from watcherml.report import plain  # a plain start does without

        before = plain.fit(room)
        try:
            yield
        finally:
            plain.fit(before)

    def folded(self, line: str, indent: str) -> str:
        """Return a line for standard error as it is, or folded to the terminal that it goes to."""
        if not _is_terminal(sys.stderr) or len(line) <= self.width:
            return line
        import textwrap

        return textwrap.fill(line, self.width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)

    def out(self, text: str) -> None:
        """Write a result to standard output."""
        self.clear()
        write_out(text if text.endswith("\n") else text + "\n")

    def say(self, text: str = "") -> None:
        """Write progress for a person to standard output; nothing with ``--quiet`` or JSON."""
        if not self.quiet and not self.json:
            self.out(text)

    def warn(self, text: str) -> None:
        """Write to standard error."""
        self.clear()
        _write(sys.stderr, text if text.endswith("\n") else text + "\n")

    def notice(self, text: str) -> None:
        """Write to standard error for a person; with JSON only errors go there."""
        if not self.json:
            self.warn(text)

    def document(self, document: Mapping[str, Any]) -> None:
        """Write one JSON document as one line."""
        self.out(json_line(document))

    def status(self, text: str) -> None:
        """Show what is going on in one moving line; only on a terminal."""
        if self._moves:
            self._frame = (self._frame + 1) % len(_FRAMES)
            line = f"{_FRAMES[self._frame]} {text}"[: self.width - 1]
            self._shown = True
            _write(sys.stderr, f"\r\x1b[K{line}")

    def clear(self) -> None:
        """Take the moving line away."""
        if self._shown:
            self._shown = False
            _write(sys.stderr, "\r\x1b[K")

    def ask(self, question: str) -> str:
        """Return a person's answer without surrounding blanks; empty if the input has ended."""
        self.clear()
        _write(sys.stderr, f"{question} ")
        answer = sys.stdin.readline()
        if not answer:
            _write(sys.stderr, "\n")
        return answer.strip()

    def agrees(self, question: str) -> bool:
        """Ask a question that only ``y`` or ``yes`` agrees to."""
        return self.ask(f"{question} [y/N]").lower() in ("y", "yes")


def json_line(document: Mapping[str, Any]) -> str:
    """Return a document as one line of ASCII JSON."""
    import json

    return json.dumps(document, allow_nan=False)


def write_out(text: str) -> None:
    """Write to standard output; ``WatcherError`` with the system's reason if it takes nothing."""
    try:
        _write(sys.stdout, text)
    except OSError as error:
        _to_nowhere(sys.stdout)  # or Python would try once more when it ends
        told = error.strerror or type(error).__name__
        remedy = "Send it to a place that can be written."
        raise WatcherError("standard output cannot be written", got=told, remedy=remedy) from None


def leave_quietly(stream: TextIO | None) -> None:
    """Flush a stream; if its reader has gone, point it nowhere, so that nothing complains when Python ends."""
    try:
        if stream is not None:
            stream.flush()
    except OSError:
        _to_nowhere(stream)
    except ValueError:
        pass  # closed


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        # A terminal that only knows ASCII must not end a command over an arrow.
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        # `watcher runs | head`: the reader has seen enough. The command goes on, and its exit code stays true.
        _to_nowhere(stream)
    except OSError:
        if stream is not sys.stderr:
            raise
        _to_nowhere(stream)  # a full disk: there is nowhere left to say so


def _to_nowhere(stream: TextIO | None) -> None:
    try:
        descriptor = stream.fileno() if stream is not None else -1
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False  # closed
