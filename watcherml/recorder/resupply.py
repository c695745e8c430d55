"""Putting a secret back into a configuration that was recorded without it.

Only the name of an environment variable is ever stored; the value goes from the environment into the configuration that
the entrypoint gets, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from watcherml.errors import InvalidValue
from watcherml.recorder.redact import PLACEHOLDER, join_path, remember

_REFERENCE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]{0,199})")
_FORM = "env:NAME, the name of an environment variable that the trials find"


def variable_of(reference: object, path: str) -> str:
    """Return NAME of ``env:NAME``; ``InvalidValue`` naming the path for anything else, which is not repeated."""
    match = _REFERENCE.fullmatch(reference) if isinstance(reference, str) else None
    if match is None:
        # It may be the secret itself.
        got = f"text of {len(reference)} characters" if isinstance(reference, str) else type(reference).__name__
        raise InvalidValue(f"secrets[{path!r:.200}]", expected=_FORM, got=got)
    return match.group(1)


def checked(secrets: Mapping[str, str], redacted_paths: Sequence[str], config: Mapping[str, Any]) -> dict[str, str]:
    """Return the mapping of redacted paths to ``env:NAME`` as plain data.

    Raises ``InvalidValue`` naming the path for one that is not redacted or cannot be told from another one, and for a
    reference of another form.
    """
    if not isinstance(secrets, Mapping):
        raise InvalidValue("secrets", expected="a mapping of paths to env:NAME", got=type(secrets).__name__)
    places = list(_places(config, ""))
    for path, reference in secrets.items():
        if not isinstance(path, str) or path not in redacted_paths:
            redacted = ", ".join(redacted_paths)[:500] or "none: this configuration holds no redacted value"
            raise InvalidValue(f"secrets[{path!r:.200}]", expected=f"a redacted path ({redacted})", got="another one")
        variable_of(reference, path)
        count = sum(place == path for place, _, _ in places)
        if count != 1:
            raise InvalidValue(
                f"secrets[{path!r:.200}]", expected="the path of one value",
                got="the path of a redacted key" if not count else f"{count} values under it",
                remedy="Keep the secret out of the keys, or the dots, and record the failure again.",
            )  # fmt: skip
    return dict(secrets)


def resupply(config: dict[str, Any], secrets: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, Any]:
    """Put the values of environment variables into a configuration in place of their placeholders, and return it.

    A variable holds the whole value of its path, as text. From then on the values are taken out of all texts that this
    process records. Raises ``InvalidValue`` naming path and variable for one that is not set.
    """
    wanted = {path: variable_of(reference, path) for path, reference in secrets.items()}
    for path, name in wanted.items():
        if not environment.get(name):
            raise InvalidValue(
                f"secret for {path}", expected=f"the environment variable {name}", got="it is not set or empty",
                remedy=f"Set {name} where the campaign is started or resumed.",
            )  # fmt: skip
    remember(environment[name] for name in wanted.values())
    for path, holder, key in list(_places(config, "")):
        if path in wanted:
            holder[key] = environment[wanted[path]]
    return config


def _places(value: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield path, container and key of each text that holds a placeholder."""
    entries: Any = ()
    if isinstance(value, Mapping):
        entries = value.items()
    elif isinstance(value, (list, tuple)):
        entries = enumerate(value)
    for key, item in entries:
        where = join_path(path, key)
        if isinstance(item, str) and PLACEHOLDER.search(item):
            yield where, value, key
        else:
            yield from _places(item, where)
