"""Secrets are taken out where data is written, not where it is shown.

What is taken out of a text is what ``find_secrets`` finds: the public shapes of provider keys, values assigned to
secret names, passwords and tokens in URLs and headers, private keys, and the very values that this process knows as
secrets (from its environment and its configurations).

The placeholder of a key that a machine made is ``[redacted:xxxxxxxx]`` with the first eight hexadecimal digits of its
SHA-256, so that two places with the same key can be told to be the same, in one store and across stores. That tells
nobody the key: there is nothing to guess it from. A password that a person made could be found by hashing likely ones,
so that its placeholder is ``[redacted]`` and says nothing about it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from watcherml.recorder import find_secrets as finder
from watcherml.recorder import secret_commands as commands
from watcherml.recorder import secret_names as names
from watcherml.recorder.assignments import PLACEHOLDER, follows_flag, is_mixed, stands_for_nothing
from watcherml.recorder.find_secrets import Span, remember
from watcherml.recorder.redact_rules import is_digest, is_plain_word, is_random

__all__ = ["PLACEHOLDER", "findings", "placeholder", "redact_argv", "redact_config", "redact_text", "remember"]

# After a replacement the neighbours may read otherwise; nothing needs more rounds than this.
_MAX_ROUNDS = 8
_NO_COUNT = 10**15  # nothing that a secret's name counts or measures is as large


def placeholder(secret: str) -> str:
    """Return what stands for a secret: with a short hash if a machine made it, without if a person may have."""
    if not finder.is_key(secret):
        return "[redacted]"
    return f"[redacted:{hashlib.sha256(secret.encode('utf-8', 'replace')).hexdigest()[:8]}]"


def redact_text(text: str) -> str:
    """Return the text with its secrets taken out; a text without secrets comes back as it is."""
    for _ in range(_MAX_ROUNDS):
        cleaned = _without(text, finder.find(text))
        if cleaned == text:
            break
        text = cleaned
    return text


def redact_argv(words: Sequence[str]) -> list[str]:
    """Return a command line with its secrets taken out; the word after ``--api-key`` is one."""
    words = _without_options(words)
    return [_redact_value(_flag(words, index), word) for index, word in enumerate(words)]


def redact_config(value: Any) -> tuple[Any, list[str]]:
    """Return a JSON value with secrets taken out and the paths where that happened, or had happened before.

    What was found by its name is remembered: the same value is taken out of later messages and tracebacks too.
    """
    paths: list[str] = []
    return _cleaned(value, "", "", False, paths), paths


def join_path(path: str, key: str | int) -> str:
    """Return the path of an entry as it is shown and listed: ``a.b[0]``."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def findings(value: Any) -> Iterator[tuple[str, str, list[Span]]]:
    """Yield (path, text, spans) for each text in a JSON value that holds what looks like a secret, keys included."""
    for path, name, text, options in _leaves(value, "", ""):
        spans = finder.find_value(name, text) or options
        if spans:
            yield path, text, spans


# -- texts ----------------------------------------------------------------------------------------------------------


def _without(text: str, spans: Sequence[Span]) -> str:
    if not spans:
        return text
    made: list[str] = []
    position = 0
    for span in spans:
        made += (text[position : span.start], placeholder(text[span.start : span.end]))
        position = span.end
    return "".join((*made, text[position:]))


# -- structures -----------------------------------------------------------------------------------------------------


def _cleaned(value: Any, path: str, name: str, secret: bool, paths: list[str]) -> Any:
    if isinstance(value, Mapping):
        return _cleaned_mapping(value, path, name, secret or names.holds_secrets_only(name), paths)
    if isinstance(value, list):
        value = _without_options(value)
        return [
            _cleaned(item, join_path(path, index), _flag(value, index) or name, secret, paths)
            for index, item in enumerate(value)
        ]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        # A mapping of secrets may count or configure them as well, in small numbers.
        listed = secret and isinstance(value, int) and abs(value) >= 1_000
        long = isinstance(value, int) and abs(value) >= _NO_COUNT
        if listed or (names.naming(name) == "strong" and (long or names.may_be_number(name, str(value)))):
            paths.append(path)
            return "[redacted]"
        return value
    if not isinstance(value, str):
        return value
    cleaned = _redact_value("password" if secret else name, value)
    if cleaned != value or PLACEHOLDER.search(value):
        paths.append(path)
    return cleaned


def _cleaned_mapping(
    value: Mapping[str, Any], path: str, parent: str, secret: bool, paths: list[str]
) -> dict[str, Any]:
    named = _named(value)
    made: dict[str, Any] = {}
    for key, item in value.items():
        shown = redact_text(key)
        where = join_path(path, shown)
        while shown in made:  # two keys that were secrets of the same kind
            shown += "'"
        if shown != key or PLACEHOLDER.search(key):
            paths.append(where)
        made[shown] = _cleaned(item, where, _name_in(parent, key, item, named), secret, paths)
    return made


def _redact_value(name: str, text: str) -> str:
    if finder.is_secret_value(name, text):
        if not PLACEHOLDER.search(text) and _is_worth_remembering(name, text):
            remember((text,))
        return placeholder(text)
    return redact_text(_without(text, finder.find_value(name, text)))


def _is_worth_remembering(name: str, text: str) -> bool:
    # An ``access_key`` may be the name of a column: what looks like a word stays where it has another name.
    if names.may_be_number(name) or finder.is_key(text):
        return True
    return is_mixed(text) and not is_plain_word(text)


def _name_in(parent: str, key: str, item: Any, named: str) -> str:
    """Return the name that an entry of a mapping is judged by."""
    if named and key.lower() == "value":
        return named
    joined = names.of_entry(parent, key)
    made = isinstance(item, str) and len(item) >= 16 and (is_random(item) or is_digest(item))
    return joined if joined and made else key


def _named(value: Mapping[str, Any]) -> str:
    """Return the name in an entry such as {"name": "HF_TOKEN", "value": ...}, else nothing."""
    lowered = {key.lower(): item for key, item in value.items()}
    if "value" not in lowered:
        return ""
    named = (lowered.get(key) for key in ("name", "key", "variable", "header"))
    return next((name for name in named if isinstance(name, str)), "")


def _flag(words: Sequence[Any], index: int) -> str:
    """Return the name that the word before gives to a word of a list, else nothing.

    The word before is an option of a command line, or the name in a pair such as ("password", ...).
    """
    before, word = (words[index - 1] if index else None), words[index]
    if not isinstance(before, str) or not isinstance(word, str):
        return ""
    said = names.naming(before)
    if not said or "=" in before or word.startswith("-"):
        return ""
    if before.startswith("-"):
        return "password" if follows_flag(before, word) else before
    return "password" if said == "strong" and len(words) == 2 and is_mixed(word) else ""


def _options(words: Sequence[Any]) -> dict[int, list[Span]]:
    """Return the secrets in words that are options of a known program, by their index."""
    found: dict[int, list[Span]] = {}
    if len(words) > 1 and all(isinstance(word, str) for word in words):
        for index, start, end in commands.secret_words(list(words)):
            if not stands_for_nothing(words[index][start:end]):
                found.setdefault(index, []).append(Span(start, end, "command_line"))
    return found


def _without_options(words: Sequence[Any]) -> list[Any]:
    found = _options(words)
    return [_without(word, sorted(found[index])) if index in found else word for index, word in enumerate(words)]


def _leaves(value: Any, path: str, name: str) -> Iterator[tuple[str, str, str, list[Span]]]:
    if isinstance(value, Mapping):
        named = _named(value)
        only = names.holds_secrets_only(name)
        for key, item in value.items():
            where = join_path(path, key)
            yield where, "", key, []
            inner = "password" if only else _name_in(name, key, item, named)
            yield from _leaves(item, where, inner)
    elif isinstance(value, list):
        found = _options(value)
        for index, item in enumerate(value):
            where, inner = join_path(path, index), _flag(value, index) or name
            if isinstance(item, str):
                yield where, inner, item, found.get(index, [])
            else:
                yield from _leaves(item, where, inner)
    elif isinstance(value, str):
        yield path, name, value, []
