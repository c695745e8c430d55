"""Finding controls in a configuration. What is ambiguous is refused with the declaration that settles it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from watcherml.errors import InvalidValue
from watcherml.planning.capability import BY_NAME, CONTROLS, Control
from watcherml.protocol.plan import Skipped
from watcherml.protocol.proposal import Authority, Capability
from watcherml.sealed.record import thaw

_TRAINING = ("train", "training", "trainer", "fit")
_ELSEWHERE = ("eval", "evaluation", "validation", "valid", "val", "test", "testing", "inference", "predict",
              "generation", "serving")  # fmt: skip
_MAX_DEPTH = 8
_ORDER: tuple[Authority, ...] = ("automatic", "approval_required")


def discover(
    config: Mapping[str, Any], declarations: Mapping[str, Any] | None = None
) -> tuple[tuple[Capability, ...], tuple[Skipped, ...]]:
    """Return the controls found in a configuration, and the ones that could not be used with the reason.

    ``declarations`` maps a capability to ``{"path": ["section", "key"], "authority": "approval_required"}``; either
    part may be absent. A declaration can name the path and tighten the authority, never loosen it. Raises
    ``InvalidValue`` naming the declaration that is wrong.
    """
    plain = thaw(config)
    declared = {name: _declaration(name, value) for name, value in (declarations or {}).items()}
    found: list[Capability] = []
    skipped: list[Skipped] = []
    for control in CONTROLS:
        path, authority = declared.get(control.name, (None, None))
        paths = [path] if path is not None else _candidates(control, plain)
        if not paths:
            continue
        if len(paths) > 1:
            skipped.append(Skipped(control.name, _ambiguous(control, paths)))
            continue
        value = _lookup(plain, paths[0])
        if not control.usable(value):
            where = ".".join(paths[0])
            skipped.append(Skipped(control.name, f"{where} holds {value!r:.60}; {control.wanted} is needed."[:2000]))
            continue
        strictest = max(control.authority, authority or control.authority, key=_ORDER.index)
        source = "declared" if path is not None else "alias"
        found.append(
            Capability(control.name, paths[0], value, strictest, control.risk, control.semantic, source)  # type: ignore[arg-type]
        )
    return tuple(found), tuple(skipped)


def _candidates(control: Control, config: Any) -> list[tuple[str, ...]]:
    paths = [path for path in _paths(config, ()) if path[-1].lower() in control.aliases]
    training = [path for path in paths if any(key.lower() in _TRAINING for key in path[:-1])]
    neutral = [path for path in paths if not any(_elsewhere(key) for key in path)]
    # A training section says what training uses; without one, sections of evaluation are left out.
    return training or neutral


def _elsewhere(key: str) -> bool:
    return key.lower() in _ELSEWHERE


def _paths(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if not isinstance(value, dict) or len(path) >= _MAX_DEPTH:
        return
    for key, item in value.items():
        if isinstance(item, dict):
            yield from _paths(item, (*path, key))
        else:
            yield (*path, key)


def _lookup(config: Any, path: tuple[str, ...]) -> Any:
    value = config
    for key in path:
        if not isinstance(value, dict) or key not in value:
            raise InvalidValue(f"capabilities path {'.'.join(path)}", expected="a key of the configuration", got="none")
        value = value[key]
    return value


def _ambiguous(control: Control, paths: list[tuple[str, ...]]) -> str:
    shown = ", ".join(".".join(path) for path in paths[:4])
    example = ", ".join(f'"{key}"' for key in paths[0])
    declare = f'Declare which one training uses: {{"{control.name}": {{"path": [{example}]}}}}.'
    return f"{len(paths)} keys could be meant: {shown}. {declare}"[:2000]


def _declaration(name: str, value: Any) -> tuple[tuple[str, ...] | None, Authority | None]:
    if name not in BY_NAME:
        raise InvalidValue(f"capabilities.{name}"[:200], expected="one of " + ", ".join(BY_NAME), got=repr(name)[:80])
    if not isinstance(value, Mapping) or set(value) - {"path", "authority"}:
        raise InvalidValue(f"capabilities.{name}", expected='an object with "path" and/or "authority"',
                           got=repr(value)[:120])  # fmt: skip
    path, authority = value.get("path"), value.get("authority")
    if path is not None:
        whole = isinstance(path, (list, tuple)) and path and all(isinstance(key, str) for key in path)
        if not whole:
            raise InvalidValue(f"capabilities.{name}.path", expected="a list of keys", got=repr(path)[:120])
        path = tuple(path)
    if authority is not None:
        if authority not in _ORDER:
            raise InvalidValue(f"capabilities.{name}.authority", expected="one of " + ", ".join(_ORDER),
                               got=repr(authority)[:80])  # fmt: skip
        if _ORDER.index(authority) < _ORDER.index(BY_NAME[name].authority):
            raise InvalidValue(f"capabilities.{name}.authority", expected="at least as strict as the default",
                               got=authority, remedy="A declaration can only tighten.")  # fmt: skip
    return path, authority
