"""What a person declares about controls: where one is, and what is allowed beyond the defaults. Only tighter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from watcherml.errors import InvalidValue
from watcherml.planning.capability import BY_ALIAS, BY_NAME, Control, naming_key, normalised
from watcherml.planning.controls_reading import sayable
from watcherml.planning.wording import brief, shown
from watcherml.protocol.plan import AUTHORITIES, RISKS
from watcherml.protocol.proposal import Authority, Capability, Risk

DeclaredAuthority = Literal["automatic", "approval_required", "forbidden"]

MAX_PATH = 16  # keys; a capability cannot hold a longer path
# Declared beside the capabilities, but about the training as a whole and read elsewhere.
WORKLOAD = "workload"
_AUTHORITIES: tuple[DeclaredAuthority, ...] = (*AUTHORITIES, "forbidden")
_KEYS = ("path", "authority", "risk", "semantic")
_TIGHTEN = "A declaration can only tighten; leave it out to keep the default."

# Aliases without their underscores, so that capitals and dashes do not hide one.
_BY_COMPACT = {alias.replace("_", ""): control for alias, control in BY_ALIAS.items()}

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
    ``capabilities.`` for an unknown name or part, a wrong type, and anything looser than the default: also a path to
    the key of another control, and one path for two controls.
    """
    if declarations is not None and not isinstance(declarations, Mapping):
        raise InvalidValue("capabilities.*", expected="an object with an object for each capability",
                           got=brief(declarations), remedy='Write {"precision": {"path": ["dtype"]}}.')  # fmt: skip
    given = {name: value for name, value in (declarations or {}).items() if name != WORKLOAD}
    for name in given:
        if name not in BY_NAME:
            word = name[:80] if isinstance(name, str) else brief(name)
            raise InvalidValue(f"capabilities.{word}", expected="one of " + ", ".join(BY_NAME),
                               got=brief(name), remedy="Use the name of a capability, not the key's.")  # fmt: skip
    declared = {name: _declaration(control, given.get(name, {})) for name, control in BY_NAME.items()}
    _one_path_each([(name, one.path) for name, one in declared.items() if one.path is not None])
    return declared


def each_its_own(found: Sequence[Capability]) -> None:
    """Raise ``InvalidValue`` where a declaration leads to the value that another control was found at."""
    aliases_first = sorted(found, key=lambda one: one.source == "declared")
    _one_path_each([(one.name, one.path) for one in aliases_first])


def lookup(config: Any, path: tuple[str, ...], name: str) -> Any:
    """Return the value a declared path leads to; ``InvalidValue`` names the key that is not there."""
    value = config
    for depth, key in enumerate(path):
        if not isinstance(value, Mapping) or key not in value:
            there = ", ".join(sorted(brief(one, 40) for one in value)[:10]) if isinstance(value, Mapping) else ""
            raise InvalidValue(
                f"capabilities.{name}.path",
                expected="keys that lead through sections to a value of the configuration",
                got=f"{brief(key)} as key {depth + 1}",
                remedy=f"The keys there are {there}." if there else "There is no section to look into.",
            )
        value = value[key]
    return value


def _declaration(control: Control, value: Any) -> Declaration:
    field = f"capabilities.{control.name}"
    if not isinstance(value, Mapping) or set(value) - set(_KEYS):
        raise InvalidValue(field, expected="an object with any of " + ", ".join(_KEYS), got=brief(value, 120),
                           remedy=f'Write {{"{control.name}": {{"path": ["section", "key"]}}}}.')  # fmt: skip
    path = value.get("path")
    authority = _stricter(f"{field}.authority", value.get("authority"), control.authority, _AUTHORITIES)
    semantic = value.get("semantic")
    if semantic is not None and (type(semantic) is not bool or (control.semantic and not semantic)):
        raise InvalidValue(f"{field}.semantic", expected="true" if control.semantic else "true or false",
                           got=brief(semantic), remedy=_TIGHTEN)  # fmt: skip
    made = Declaration(
        path=None if path is None else _path(f"{field}.path", path),
        authority=control.authority if authority == "forbidden" else authority,
        risk=_stricter(f"{field}.risk", value.get("risk"), control.risk, RISKS),
        semantic=control.semantic or bool(semantic),
        forbidden=authority == "forbidden",
    )
    if made.path is not None:
        _not_another(control, made, made.path)
    return made


def _not_another(control: Control, made: Declaration, path: tuple[str, ...]) -> None:
    """Raise for a path to another control's key, or into the section of one that is stricter than what is declared."""
    other = _other_control(control, path)
    if other is None:
        section = next((one for one in map(_control_of, reversed(path[:-1])) if one is not None), None)
        own = _control_of(path[-1]) is control
        if own or section is None or section is control or not _stricter_than(section, made):
            return
        other = section
    raise InvalidValue(
        f"capabilities.{control.name}.path",
        expected=f"a key of {control.name}, or one with a name of its own",
        got=f"{shown(path)}, where {other.name} is found",
        remedy=f"Declare it as {other.name}, which keeps the authority and risk that go with it.",
    )


def _other_control(control: Control, path: tuple[str, ...]) -> Control | None:
    """Return the control, other than this one, that the key which names the value belongs to."""
    named = BY_ALIAS.get(naming_key(path)) or _control_of(path[-1])
    return None if named is control else named


def _control_of(key: str) -> Control | None:
    """Return the control that a key names, also as ``--seq-len``, ``maxSeqLength`` or the end of ``data.seq_len``."""
    last = key.replace("/", ".").rsplit(".", 1)[-1]
    names = (_compact(key), _compact(last))
    return next((_BY_COMPACT[name] for name in names if name in _BY_COMPACT), None)


def _compact(key: str) -> str:
    return normalised(key).replace("_", "").strip()


def _stricter_than(other: Control, made: Declaration) -> bool:
    return (
        AUTHORITIES.index(other.authority) > AUTHORITIES.index(made.authority)
        or RISKS.index(other.risk) > RISKS.index(made.risk)
        or (other.semantic and not made.semantic)
    )


def _one_path_each(paths: Sequence[tuple[str, tuple[str, ...]]]) -> None:
    taken: dict[tuple[str, ...], str] = {}
    for name, path in paths:
        if path in taken:
            raise InvalidValue(
                f"capabilities.{name}.path",
                expected=f"another value than capabilities.{taken[path]}.path",
                got=f"{shown(path)} for both",
                remedy="One value cannot be two controls; declare the one that it is.",
            )
        taken[path] = name


def _path(field: str, path: Any) -> tuple[str, ...]:
    whole = isinstance(path, (list, tuple)) and 0 < len(path) <= MAX_PATH
    if not whole or not all(isinstance(key, str) and sayable(key) for key in path):
        raise InvalidValue(field, expected=f"a list of 1 to {MAX_PATH} keys", got=brief(path, 120),
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
    raise InvalidValue(field, expected="one of " + ", ".join(allowed), got=brief(declared), remedy=_TIGHTEN)
