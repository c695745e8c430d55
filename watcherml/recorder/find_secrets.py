"""Where secrets stand in a text: the one answer that redaction and scanning share."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from watcherml.recorder import redact_rules as rules
from watcherml.recorder import secret_commands as commands
from watcherml.recorder import secret_names as names
from watcherml.recorder.assignments import PLACEHOLDER, assignments, is_path, looks_secret, refers, stands_for_nothing

# One call into a pattern holds the interpreter for as long as it takes; training must not feel it.
_CHUNK_CHARACTERS = 32_768
_MAX_PEM = 30_000  # characters of a private key


_RULES = (*rules.KEYS, *rules.PLACES, *commands.RULES)


class Span(NamedTuple):
    """One secret: characters ``start`` to ``end`` of the text, and the kind of shape that it has."""

    start: int
    end: int
    kind: str


def find(text: str) -> list[Span]:
    """Return the secrets in a text, in order and without overlaps."""
    low = text.lower()
    found = [*_private_keys(text), *_literals(text)]
    if "password" in low:
        found += _matches(rules.NETRC, text, 0)
    found += _aws_secrets(text, low)
    for start, end in _chunks(text):
        part = text if end - start == len(text) else text[start:end]
        low = part.lower()
        for rule in _RULES:
            if any(word in low for word in rule.words):
                found += _matches(rule, part, start)
        found += (Span(first + start, last + start, "assigned_secret") for first, last in assignments(part))
    return _merged(found, text)


def find_value(name: str, text: str) -> list[Span]:
    """Return the secrets in a text that is the whole value of a name, such as an entry of a configuration."""
    if is_secret_value(name, text):
        return [Span(0, len(text), "named_secret")]
    spans = find(text)
    header = names.header_of(name)
    if header and not spans and (header != "Cookie" or "=" in text):  # as it would be sent
        before = len(header) + 2
        sent = find(f"{header}: {text}")
        spans = [Span(max(0, start - before), end - before, kind) for start, end, kind in sent if end > before]
    return spans


def is_secret_value(name: str, text: str) -> bool:
    """Tell whether a name makes a whole text a secret."""
    said = names.naming(name)
    if not said or stands_for_nothing(text) or names.is_setting(name, text):
        return False
    if said == "strong":
        return not (is_path(text) and not names.may_be_number(name))
    return looks_secret(name, text)


def is_key(value: str) -> bool:
    """Tell whether a secret was made by a machine, so that nobody can find it by guessing."""
    if len(value) < 16:
        return False
    if rules.is_random(value, 20) or "PRIVATE KEY" in value[:100]:
        return True
    low = value.lower()
    return any(
        any(word in low for word in rule.words) and rule.pattern.fullmatch(value) is not None for rule in rules.KEYS
    )


# -- values that are known ----------------------------------------------------------------------------------------

_known: dict[str, None] = {}
_MAX_KNOWN = 1_000
_LEAST_KNOWN = 8


def remember(values: Iterable[str]) -> None:
    """Have these very values taken out of every later text of this process, wherever they stand.

    Short ones and plain words are not remembered: they would be found in texts that have nothing to do with them.
    """
    for value in values:
        if len(_known) < _MAX_KNOWN and _is_telling(value):
            _known[value] = None


def _is_telling(value: str) -> bool:
    plain = value.isalpha() or value.isdigit() or stands_for_nothing(value)
    return len(value) >= _LEAST_KNOWN and (not plain or len(value) >= 2 * _LEAST_KNOWN) and not is_path(value)


def _literals(text: str) -> Iterator[Span]:
    if len(text) < _LEAST_KNOWN:  # as most names and values of a large configuration are
        return
    for value in (*_known, *_of_environment()):
        at = text.find(value)
        while at >= 0:
            yield Span(at, at + len(value), "known_value")
            at = text.find(value, at + len(value))


def _of_environment() -> list[str]:
    # Read at each call: a program may set them at any time.
    return [value for name, value in list(os.environ.items()) if _is_secret_variable(name, value)]


@functools.lru_cache(maxsize=1_024)
def _is_secret_variable(name: str, value: str) -> bool:
    return names.naming(name) == "strong" and not stands_for_nothing(value) and _is_telling(value)


# -- shapes -------------------------------------------------------------------------------------------------------


def _matches(rule: rules.Rule, text: str, offset: int) -> Iterator[Span]:
    position = 0
    while (match := rule.pattern.search(text, position)) is not None:
        start, end = match.span(commands.secret_group(match))
        value = text[start:end]
        position = max(end, match.start() + 1)
        taken_out = PLACEHOLDER.match(text, start) or refers(value)
        if not taken_out and (rule.holds is None or rule.holds(value)):
            yield Span(start + offset, end + offset, rule.kind)


_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_LINE = re.compile(r"(?:[\s>+-]|\\[nr])*[A-Za-z0-9+/=]{16,}(?:\\[nr]|[\"',]|\s)*")


def _private_keys(text: str) -> Iterator[Span]:
    """Yield private keys: whole blocks, and what an excerpt (one hunk of a patch) shows of a block."""
    position = 0
    while (begin := _PEM.search(text, position)) is not None:
        following = text.find("-----BEGIN ", begin.end())
        stop = min(len(text) if following < 0 else following, begin.end() + _MAX_PEM)
        end = _PEM_END.search(text, begin.end(), stop)
        if end is None:
            position = begin.end()
            while (line := _PEM_LINE.match(text, position, stop)) is not None:
                position = line.end()
            if position > begin.end():
                yield Span(begin.start(), position, "private_key")
        else:
            position = end.end()
            yield Span(begin.start(), position, "private_key")
    for last in _PEM_END.finditer(text) if "-----END " in text else ():
        first = text.rfind("\n", 0, last.start()) + 1
        if text[first : last.start()].strip(" \t>+-"):
            continue
        while first > 0:
            line_start = text.rfind("\n", 0, first - 1) + 1
            if last.start() - line_start > _MAX_PEM or not _PEM_LINE.fullmatch(text, line_start, first):
                break
            first = line_start
        if text.count("\n", first, last.start()):
            yield Span(first, last.end(), "private_key")


def _aws_secrets(text: str, low: str) -> Iterator[Span]:
    if any(word in low for word in rules.AWS_ID.words):
        for match in rules.AWS_ID.pattern.finditer(text):
            first, last = max(0, match.start() - rules.AWS_NEAR), match.end() + rules.AWS_NEAR
            for near in rules.AWS_SECRET.finditer(text, first, last):
                if rules.is_aws_secret(near.group()):
                    yield Span(*near.span(), "aws_secret_key")


# -- putting it together ------------------------------------------------------------------------------------------


def _chunks(text: str) -> Iterator[tuple[int, int]]:
    """Cut a long text at line ends."""
    start = 0
    while len(text) - start > 2 * _CHUNK_CHARACTERS:
        end = text.find("\n", start + _CHUNK_CHARACTERS) + 1
        if not end:
            break
        yield start, end
        start = end
    if start < len(text):
        yield start, len(text)


_IMAGE = re.compile(r"data:[a-z]{2,20}/[a-z0-9.+-]{1,40};base64,[A-Za-z0-9+/=]{40,}")


def _merged(found: list[Span], text: str) -> list[Span]:
    """Return spans in order, overlapping ones as one; what only looks like a key within an image's bytes is none."""
    if not found:
        return []
    images = [match.span() for match in _IMAGE.finditer(text)] if ";base64," in text else []
    merged: list[Span] = []
    for span in sorted(found):
        if any(start <= span.start < end for start, end in images):
            continue
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = Span(last.start, max(last.end, span.end), last.kind)
        else:
            merged.append(span)
    return merged
