"""Any configuration as JSON, with the places where something was lost."""

from __future__ import annotations

import argparse
import dataclasses
import math
import types
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any

from watcherml.sealed.canonical import MAX_SAFE_INTEGER

_MAX_DEPTH = 32
_MAX_TEXT = 100_000


def to_jsonable(value: Any) -> tuple[Any, list[str]]:
    """Return a JSON copy of a value and the paths whose value cannot be given back as it was.

    Mappings, dataclasses and Namespaces become objects, sequences become lists, numpy and 0-dim torch numbers become
    numbers. A Path, dtype, NaN, enum, set, callable, cycle or any other object becomes text and is listed. Never
    raises.
    """
    lossy: list[str] = []
    return _convert(value, "", lossy, frozenset()), lossy


def _convert(value: Any, path: str, lossy: list[str], parents: frozenset[int]) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return _text(value, path, lossy) if isinstance(value, str) else value
    if isinstance(value, Enum):
        return _lose(str(value), path, lossy)
    if isinstance(value, int):
        return int(value) if abs(value) <= MAX_SAFE_INTEGER else _lose(str(value), path, lossy)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _lose(str(float(value)), path, lossy)
    if id(value) in parents or len(parents) > _MAX_DEPTH:
        return _lose("<cycle>" if id(value) in parents else "<too deep>", path, lossy)
    inside = parents | {id(value)}
    if isinstance(value, (list, tuple)):
        return [_convert(item, f"{path}[{index}]", lossy, inside) for index, item in enumerate(value)]
    if isinstance(value, (set, frozenset)):
        items = sorted((_convert(item, path, lossy, inside) for item in value), key=repr)
        return _lose(items, path, lossy)
    fields = _fields(value)
    if fields is not None:
        return _object(fields, path, lossy, inside)
    return _foreign(value, path, lossy, inside)


def _fields(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    if isinstance(value, (argparse.Namespace, types.SimpleNamespace)):
        return vars(value)
    return None


def _object(fields: Mapping[Any, Any], path: str, lossy: list[str], inside: frozenset[int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, item in fields.items():
        name = key if isinstance(key, str) else str(key)
        name = name.encode("utf-8", "replace").decode("utf-8")
        where = f"{path}.{name}" if path else name
        if name is not key and name != key:
            lossy.append(where)
        found[name] = _convert(item, where, lossy, inside)
    return found


def _foreign(value: Any, path: str, lossy: list[str], inside: frozenset[int]) -> Any:
    if isinstance(value, PurePath):
        return _lose(str(value), path, lossy)
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", None) == 0:
        try:
            number = item()
        except Exception:  # noqa: BLE001 - a foreign object's method; its text is kept instead
            number = None
        if isinstance(number, (bool, int, float, str)):
            return _convert(number, path, lossy, inside)
    try:
        text = str(value) if not callable(value) else getattr(value, "__qualname__", type(value).__name__)
    except Exception:  # noqa: BLE001 - a foreign object's __str__
        text = f"<{type(value).__name__}>"
    if " object at 0x" in text:
        text = f"<{type(value).__qualname__}>"  # an address would make each run's configuration another one
    return _lose(text[:1_000], path, lossy)


def _text(value: str, path: str, lossy: list[str]) -> str:
    whole = value.encode("utf-8", "replace").decode("utf-8")
    if len(whole) > _MAX_TEXT:
        whole = whole[:_MAX_TEXT]
    if whole != value:
        lossy.append(path)
    return str(whole)


def _lose(value: Any, path: str, lossy: list[str]) -> Any:
    lossy.append(path)
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value
