"""What a person declares about controls: where one is, and what is allowed beyond the defaults. Only tighter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from watcherml.errors import InvalidValue
from watcherml.planning.capability import BY_NAME, Control
from watcherml.planning.controls_reading import sayable
from watcherml.protocol.proposal import Authority, Risk

DeclaredAuthority = Literal["automatic", "approval_required", "forbidden"]

MAX_PATH = 16  # keys; a capability cannot hold a longer path
# Declared beside the capabilities, but about the training as a whole and read elsewhere.
RESERVED = ("workload",)
_AUTHORITIES: tuple[DeclaredAuthority, ...] = ("automatic", "approval_required", "forbidden")
_RISKS: tuple[Risk, ...] = ("low", "medium", "high")
_KEYS = ("path", "authority", "risk", "semantic")
_TIGHTEN = "A declaration can only tighten; leave it out to keep the default."

T = TypeVar("T", bound=str)


@dataclass(frozen=True)
class Declaration:
    """What holds for one control: the defaults with what was declared. ``path`` is None where none was declared."""

    path: tuple[str, ...] | None
    authority: Authority
    risk: Risk
    semantic: bool
    forbidden: bool


def read_declarations(declarations: Mapping[str, Any] | None) -> dict[str, Declaration]:
    """Return a declaration for each of the 13 controls; one that was not declared holds the defaults.

    ``{"precision": {"path": ["train", "dtype"], "authority": "forbidden", "risk": "high", "semantic": true}}``, each
    part optional; the key ``workload`` is passed over. Raises ``InvalidValue`` whose field starts with
    ``capabilities.`` for an unknown name or part, a wrong type, and anything looser than the default.
    """
    if declarations is not None and not isinstance(declarations, Mapping):
        raise InvalidValue("capabilities.*", expected="an object with an object for each capability",
                           got=repr(declarations)[:80], remedy='Write {"precision": {"path": ["dtype"]}}.')  # fmt: skip
    given = {name: value for name, value in (declarations or {}).items() if name not in RESERVED}
    for name in given:
        if name not in BY_NAME:
            raise InvalidValue(f"capabilities.{name}"[:200], expected="one of " + ", ".join(BY_NAME),
                               got=repr(name)[:80], remedy="Use the name of a capability, not the key's.")  # fmt: skip
    return {name: _declaration(control, given.get(name, {})) for name, control in BY_NAME.items()}


def lookup(config: Any, path: tuple[str, ...], name: str) -> Any:
    """Return the value a declared path leads to; ``InvalidValue`` names the key that is not there."""
    value = config
    for depth, key in enumerate(path):
        if not isinstance(value, Mapping) or key not in value:
            there = ", ".join(sorted(repr(one)[:40] for one in value)[:10]) if isinstance(value, Mapping) else ""
            raise InvalidValue(
                f"capabilities.{name}.path",
                expected="keys that lead through sections to a value of the configuration",
                got=f"{key!r:.80} as key {depth + 1}",
                remedy=f"The keys there are {there}." if there else "There is no section to look into.",
            )
        value = value[key]
    return value


def _declaration(control: Control, value: Any) -> Declaration:
    field = f"capabilities.{control.name}"
    if not isinstance(value, Mapping) or set(value) - set(_KEYS):
        raise InvalidValue(field, expected="an object with any of " + ", ".join(_KEYS), got=repr(value)[:120],
                           remedy=f'Write {{"{control.name}": {{"path": ["section", "key"]}}}}.')  # fmt: skip
    path = value.get("path")
    authority = _stricter(f"{field}.authority", value.get("authority"), control.authority, _AUTHORITIES)
    semantic = value.get("semantic")
    if semantic is not None and (type(semantic) is not bool or (control.semantic and not semantic)):
        raise InvalidValue(f"{field}.semantic", expected="true" if control.semantic else "true or false",
                           got=repr(semantic)[:80], remedy=_TIGHTEN)  # fmt: skip
    return Declaration(
        path=None if path is None else _path(f"{field}.path", path),
        authority=control.authority if authority == "forbidden" else authority,
        risk=_stricter(f"{field}.risk", value.get("risk"), control.risk, _RISKS),
        semantic=control.semantic or bool(semantic),
        forbidden=authority == "forbidden",
    )


def _path(field: str, path: Any) -> tuple[str, ...]:
    whole = isinstance(path, (list, tuple)) and 0 < len(path) <= MAX_PATH
    if not whole or not all(isinstance(key, str) and sayable(key) for key in path):
        raise InvalidValue(field, expected=f"a list of 1 to {MAX_PATH} keys", got=repr(path)[:120],
                           remedy='Write it as ["section", "key"].')  # fmt: skip
    return tuple(path)


def _stricter(field: str, declared: Any, default: T, order: Sequence[T]) -> T:
    if declared is None:
        return default
    allowed = order[order.index(default) :]
    for one in allowed:
        if declared == one:
            return one
    if declared in order:
        raise InvalidValue(field, expected=f"at least as strict as the default, {default}", got=str(declared),
                           remedy=_TIGHTEN)  # fmt: skip
    raise InvalidValue(field, expected="one of " + ", ".join(allowed), got=repr(declared)[:80], remedy=_TIGHTEN)
