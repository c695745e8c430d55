"""Secrets are taken out of a patch without breaking it: the same lines, the same line endings, binary parts as is."""

from __future__ import annotations

import re
from collections.abc import Callable

_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
# Lines of a header that git made itself; a rule for long random values must not take a blob's name for a secret.
_OWN = re.compile(rb"index [0-9a-f]+\.\.|(?:old|new|deleted file|new file) mode |(?:dis)?similarity index ")
_FILLER = "[redacted]"

Redact = Callable[[str], str]


def redact_patch(patch: bytes, redact: Redact) -> tuple[bytes, int]:
    """Return a patch made by git with ``redact`` applied to its text, and the number of lines that changed.

    The number of lines never changes, so that hunk headers stay right: a secret of several lines leaves one
    placeholder and then filler lines. ``GIT binary patch`` parts, line endings and bytes that are no UTF-8 stay as
    they are. A patch whose removed or unchanged lines were redacted can be read but no longer applied to them.
    """
    lines = patch.split(b"\n")
    cleaned: list[bytes] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        hunk = _HUNK.match(line)
        if hunk:
            cleaned.append(line[: hunk.end()] + _redact_line(line[hunk.end() :], redact))
            end = _end_of_hunk(lines, at + 1, int(hunk[1] or 1), int(hunk[2] or 1))
            cleaned.extend(_redact_hunk(lines[at + 1 : end], redact))
            at = end
        elif line == b"GIT binary patch":
            # Base 85 has no blank, so no line of the data looks like the next header.
            end = at + 1
            while end < len(lines) and not lines[end].startswith(b"diff --git "):
                end += 1
            cleaned.extend(lines[at:end])
            at = end
        else:
            cleaned.append(line if _OWN.match(line) else _redact_line(line, redact))
            at += 1
    changed = sum(before != after for before, after in zip(lines, cleaned, strict=True))
    return b"\n".join(cleaned), changed


def _end_of_hunk(lines: list[bytes], at: int, old: int, new: int) -> int:
    """Return the index after a hunk's last line; only the counts tell a removed ``-- x`` from a header."""
    while at < len(lines) and (old > 0 or new > 0):
        mark = lines[at][:1]
        old -= mark not in (b"+", b"\\")
        new -= mark not in (b"-", b"\\")
        at += 1
    if at < len(lines) and lines[at].startswith(b"\\"):
        at += 1
    return at


def _redact_hunk(lines: list[bytes], redact: Redact) -> list[bytes]:
    """Redact the file before and the file after: a secret of several lines is whole only in one of them."""
    cleaned = list(lines)
    for mark in (b"-", b"+"):
        rows = [row for row, line in enumerate(lines) if line[:1] in (b" ", mark)]
        before = [_text(lines[row][1:]) for row in rows]
        for row, old, new in zip(rows, before, _redact_lines(before, redact), strict=True):
            if old != new:
                cleaned[row] = lines[row][:1] + _bytes(new)
    return cleaned


def _redact_lines(lines: list[str], redact: Redact) -> list[str]:
    whole = "\n".join(lines)
    cleaned = redact(whole)
    if cleaned == whole:
        return lines
    found = cleaned.split("\n")
    if len(found) == len(lines):
        return found
    from difflib import SequenceMatcher  # rarely needed

    kept: list[str] = []
    for kind, start, end, first, last in SequenceMatcher(None, lines, found, autojunk=False).get_opcodes():
        if kind == "equal":
            kept.extend(lines[start:end])
            continue
        room = end - start
        parts = found[first:last]
        if len(parts) > room:
            parts = [*parts[: room - 1], " ".join(parts[room - 1 :])] if room else []
        kept.extend(parts)
        kept.extend(_FILLER + "\r" * line.endswith("\r") for line in lines[start + len(parts) : end])
    return kept


def _redact_line(line: bytes, redact: Redact) -> bytes:
    return _bytes(redact(_text(line)).replace("\n", " ")) if line else line


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
