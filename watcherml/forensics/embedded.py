"""Exceptions that exist only as text: printed tracebacks, and the ones that workers put into their messages.

``torch.utils.data``, ``torch.multiprocessing``, TorchScript, ``concurrent.futures`` and Ray carry a worker's
exception as the text of a traceback inside the message of another exception. The reader follows the layout of
Python's own traceback printer (chains, groups with their gutter, and what launchers print before each line) and takes
time linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Link = Literal["cause", "context", "sibling", ""]

TRACEBACK_LIMIT = 200_000  # characters read from the end of a traceback; the innermost frames stand last
MAX_EXCEPTIONS = 200

_HEADER = re.compile(r"Traceback[^\n]{0,80}\(most recent call last\)")
_EXCEPTION = re.compile(r"((?:[A-Za-z_]\w{0,80}\.){0,12}[A-Za-z_]\w{0,80}(?:\(\w{1,80}\))?)(?:: ?(.*)|:?$)", re.DOTALL)
_TELLING = re.compile(r"\.|(?:Error|Exception|Interrupt|Exit|Group)$")
_ANSI = re.compile(r"\x1b\[[0-9;]{0,20}m")
# torch.compile quotes what a call raised while it was traced.
_TRACED = re.compile(
    r"\ADynamo failed to run FX node\b[^\n]{0,20000}? got (\w{1,80})\((['\"])([^\n]{1,4000})\2\)\.?$", re.M
)
_BEFORE_FRAME = re.compile(r'([^\n]{0,200}?)  File "')
_GUTTER = re.compile(r" {0,200}\| ?")
_DIVIDER = re.compile(r" {0,200}\+(?:-\+)?-{3,}(?: [0-9.]{1,10} -+)?\s*")
_LINKS: dict[str, Link] = {
    "The above exception was the direct cause of the following exception:": "cause",
    "During handling of the above exception, another exception occurred:": "context",
}


@dataclass
class Told:
    """One exception read from text; ``link`` relates it to the next outer one (empty for the outermost)."""

    type_name: str
    lines: list[str] = field(default_factory=list)
    frames: str = ""
    link: Link = ""

    @property
    def message(self) -> str:
        """The message as it was printed, without the marks that process pools put around it."""
        return "\n".join(self.lines).strip().removesuffix('"""').strip()


def split_message(message: str) -> tuple[str, list[Told]]:
    """Return the message up to the first traceback inside it, and that traceback's exceptions, innermost first."""
    found = _HEADER.search(message)
    if not found:
        traced = _TRACED.search(message)
        return (message, []) if traced is None else ("", [Told(traced[1], [traced[3]])])
    line = message.rfind("\n", 0, found.start()) + 1
    return message[:line], read_traceback(message[line:])


def read_traceback(text: str) -> list[Told]:
    """Return the exceptions of a printed traceback, innermost first; the last one is what was raised."""
    text = _ANSI.sub("", text[-TRACEBACK_LIMIT:])
    grouped = "Exception Group Traceback" in text
    reader = _Reader()
    for line in text.splitlines() if grouped else _bare(text.splitlines()):
        if grouped:
            if _DIVIDER.fullmatch(line):
                reader.divide()
                continue
            line = line[gutter.end() :] if (gutter := _GUTTER.match(line)) else line
        reader.read(line)
    return reader.told


def _bare(lines: list[str]) -> Iterator[str]:
    """Yield the lines without what stands before each of a traceback: a rank, a worker's name, an indentation."""
    prefix = ""
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if _HEADER.search(line):
            before = _BEFORE_FRAME.match(following)
            repeated = before is not None and (before[1].isspace() or line.startswith(before[1]))
            prefix = before[1] if before is not None and repeated else ""
        yield line.removeprefix(prefix)


class _Reader:
    """Takes a traceback line by line: frames until an unindented exception line, then its message."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.frames: list[str] = []
        self.in_frames = True
        self.headed = False  # whether a traceback has begun; before that only a telling name is an exception's
        self.at = 0  # where the next exception goes: before the one that contains it, after the one it follows
        self.link: Link = ""

    def read(self, line: str) -> None:
        link = _LINKS.get(line.strip())
        if link and self.told and not self.in_frames:
            current = self.told[self.at]
            outer_link, current.link = current.link, link
            self._expect(self.at + 1, outer_link)
        elif line.startswith('  File "') or _HEADER.search(line):
            if not self.in_frames:
                self._expect(self.at, "cause")
            self.headed = True
            self.frames.append(line)
        elif self.in_frames:
            self._maybe_exception(line)
        else:
            self.told[self.at].lines.append(line)

    def divide(self) -> None:
        if self.told and not self.in_frames:
            inside = self.told[self.at].type_name.endswith("Group")
            self._expect(self.at, "cause" if inside else "sibling")

    def _expect(self, at: int, link: Link) -> None:
        self.at, self.link, self.in_frames, self.frames = at, link, True, []

    def _maybe_exception(self, line: str) -> None:
        found = None if line[:1].isspace() else _EXCEPTION.fullmatch(line)
        if not found or len(self.told) >= MAX_EXCEPTIONS or not (self.headed or _TELLING.search(found[1])):
            self.frames.append(line)
            return
        self.told.insert(self.at, Told(found[1], [found[2] or ""], "\n".join(self.frames), self.link))
        self.in_frames = False
