"""Any configuration as JSON, with the places where something was lost.

What is read here was written by others: it may raise while it is read, answer with the wrong type, hold itself, or have
no end. Whatever it does, the conversion ends, and what could not be kept is named.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import types
from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import islice
from pathlib import PurePath
from typing import Any

from watcherml.sealed.canonical import MAX_SAFE_INTEGER

_MAX_DEPTH = 32
_MAX_TEXT = 100_000  # characters of one text
_MAX_FOREIGN = 1_000  # characters of an object's own text
_MAX_VALUES = 100_000  # in one configuration
_MAX_CHARACTERS = 20_000_000  # in one configuration
_MAX_ARRAY = 1_000  # numbers of an array that are kept
_MAX_BITS = 10_000  # of an integer that is written out; decimal digits take quadratic time
_ADDRESS = " at 0x"


def to_jsonable(value: Any) -> tuple[Any, list[str]]:
    """Return a JSON copy of a value and the paths whose value cannot be given back as it was.

    Mappings, dataclasses, Namespaces, attrs and named tuples become objects, also what offers ``model_dump``,
    ``to_dict`` or ``keys``; sequences become lists, numpy and 0-dim torch numbers become numbers. A Path, dtype, NaN,
    enum, set, array, callable, cycle or any other object becomes text, a list or a word in angle brackets, and is
    listed; so is a text that had to be cut. Never raises.
    """
    conversion = _Conversion()
    return conversion.convert(value, "", frozenset()), list(dict.fromkeys(conversion.lossy))


class _Conversion:
    def __init__(self) -> None:
        self.lossy: list[str] = []
        self._values = _MAX_VALUES
        self._characters = _MAX_CHARACTERS

    def convert(self, value: Any, path: str, parents: frozenset[int]) -> Any:
        self._values -= 1
        if self._values < 0:
            return self._lose(f"<left out: more than {_MAX_VALUES} values>", path)
        try:
            return self._convert(value, path, parents)
        except Exception as error:  # noqa: BLE001 - the object's own code; training must not notice
            return self._lose(f"<{_type_name(value)}: {type(error).__name__} while it was read>", path)

    def _convert(self, value: Any, path: str, parents: frozenset[int]) -> Any:
        if value is None or value is True or value is False:
            return value
        if isinstance(value, str):
            return self._text(value, path)
        if isinstance(value, Enum):
            return self._lose(f"{type(value).__name__}.{value.name}", path)
        # A subclass may answer int() or float() with anything; the base class reads what is there.
        if isinstance(value, int):
            return self._integer(int.__index__(value), path)
        if isinstance(value, float):
            number = float.__float__(value)
            return number if math.isfinite(number) else self._lose(str(number), path)
        if id(value) in parents or len(parents) > _MAX_DEPTH:
            return self._lose("<cycle>" if id(value) in parents else "<too deep>", path)
        return self._container(value, path, parents | {id(value)})

    def _container(self, value: Any, path: str, inside: frozenset[int]) -> Any:
        fields = getattr(type(value), "_fields", None)
        if isinstance(value, tuple) and isinstance(fields, tuple) and len(fields) == len(value):
            return self._object(zip(fields, value, strict=True), path, inside)
        if isinstance(value, (list, tuple)):
            return [self.convert(item, f"{path}[{index}]", inside) for index, item in self._up_to_limit(value)]
        if isinstance(value, (set, frozenset)):
            items = [self.convert(item, path, inside) for _, item in self._up_to_limit(value)]
            return self._lose(sorted(items, key=repr), path)
        entries = _entries(value)
        return self._foreign(value, path, inside) if entries is None else self._object(entries, path, inside)

    def _up_to_limit(self, items: Any) -> Iterator[tuple[int, Any]]:
        return islice(enumerate(items), self._values + 1)

    def _object(self, entries: Iterator[tuple[Any, Any]], path: str, inside: frozenset[int]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        try:
            for key, item in entries:
                name, exact = _key(key)
                while name in found:  # two keys that are one in JSON, such as 1 and "1"
                    name, exact = name + "'", False
                where = f"{path}.{name}" if path else name
                if not exact:
                    self.lossy.append(where)
                found[name] = self._entry(item, where, inside)
                if self._values < 0:
                    self._mark(found, path, "<left out>", f"more than {_MAX_VALUES} values")
                    break
        except Exception as error:  # noqa: BLE001 - a mapping that breaks while it is read keeps what was read of it
            self._mark(found, path, "<unreadable>", f"{type(error).__name__} while it was read")
        return found

    def _mark(self, found: dict[str, Any], path: str, key: str, reason: str) -> None:
        found[key] = self._lose(reason, f"{path}.{key}" if path else key)

    def _entry(self, item: Any, where: str, inside: frozenset[int]) -> Any:
        if type(item) is _Unreadable:  # isinstance asks the object itself, which may raise
            return self._lose(f"<{item.reason} while it was read>", where)
        return self.convert(item, where, inside)

    def _foreign(self, value: Any, path: str, inside: frozenset[int]) -> Any:
        if isinstance(value, PurePath):
            return self._lose(str(value), path)
        if isinstance(value, type):
            return self._lose(f"{value.__module__}.{value.__qualname__}".removeprefix("builtins."), path)
        if isinstance(value, types.ModuleType):
            return self._lose(f"<module {value.__name__}>", path)
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple) and hasattr(value, "dtype"):
            return self._array(value, shape, path, inside)
        if callable(value):
            name = getattr(value, "__qualname__", None)
            return self._lose(name[:_MAX_FOREIGN] if type(name) is str else _type_name(value), path)
        text = str(value)
        if _ADDRESS in text:
            text = f"<{_type_name(value)}>"  # an address would make each run's configuration another one
        return self._lose(text[:_MAX_FOREIGN], path)

    def _array(self, value: Any, shape: tuple[Any, ...], path: str, inside: frozenset[int]) -> Any:
        """Convert a numpy or torch value; of a large one, or of one on a GPU, only the shape is read."""
        if len(shape) == 0:
            number = value.item()
            if isinstance(number, (bool, int, float, str)):
                return self.convert(number, path, inside)
            return self._lose(str(number)[:_MAX_FOREIGN], path)
        if math.prod(shape) <= _MAX_ARRAY and str(getattr(value, "device", "cpu")) == "cpu":
            return self._lose(self.convert(value.tolist(), path, inside), path)
        return self._lose(f"<{_type_name(value)} shape={tuple(shape)} dtype={value.dtype}>"[:_MAX_FOREIGN], path)

    def _integer(self, value: int, path: str) -> Any:
        if abs(value) <= MAX_SAFE_INTEGER:
            return value
        bits = value.bit_length()
        return self._lose(str(value) if bits <= _MAX_BITS else f"<int of {bits} bits>", path)

    def _text(self, value: str, path: str) -> str:
        room = max(0, min(_MAX_TEXT, self._characters))
        # The base class's own methods: a subclass may answer with anything.
        kept = str.__getitem__(value, slice(0, room))
        self._characters -= len(kept)
        whole = kept.encode("utf-8", "replace").decode("utf-8")
        if str.__len__(value) > room or whole != kept:
            self.lossy.append(path)
        return whole

    def _lose(self, value: Any, path: str) -> Any:
        self.lossy.append(path)
        return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value


class _Unreadable:
    """Stands for an entry that raised when it was asked for."""

    def __init__(self, error: Exception) -> None:
        self.reason = type(error).__name__


def _entries(value: Any) -> Iterator[tuple[Any, Any]] | None:
    """Return the keys and values of what is, or offers, a mapping; None for anything else."""
    kind = type(value)
    if isinstance(value, Mapping):
        return _items(value)
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return _attributes(value, [field.name for field in dataclasses.fields(value)])
    if isinstance(value, (argparse.Namespace, types.SimpleNamespace)):
        return iter(list(vars(value).items()))
    attributes = getattr(kind, "__attrs_attrs__", None)
    if attributes is not None:
        return _attributes(value, [one.name for one in attributes])
    if hasattr(value, "dtype"):
        return None  # a pandas table offers to_dict, and would be copied whole
    for name in ("model_dump", "to_dict"):
        # Looked up on the class: an object that answers to every name offers nothing.
        method = getattr(kind, name, None)
        found = method(value) if callable(method) else None
        if isinstance(found, Mapping):
            return _items(found)
    if callable(getattr(kind, "keys", None)) and callable(getattr(kind, "__getitem__", None)):
        return _items(value)
    return None


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in value.keys():  # noqa: SIM118 - not every one of them iterates over its keys
        try:
            item = value[key]
        except Exception as error:  # noqa: BLE001 - one entry, such as a missing mandatory value, costs itself only
            item = _Unreadable(error)
        yield key, item


def _attributes(value: Any, names: list[str]) -> Iterator[tuple[Any, Any]]:
    for name in names:
        try:
            item = getattr(value, name)
        except Exception as error:  # noqa: BLE001 - a property, or a field that was never set
            item = _Unreadable(error)
        yield name, item


def _key(key: Any) -> tuple[str, bool]:
    """Return a key as text, and whether it was that text."""
    try:
        text = str.__str__(key) if isinstance(key, str) else str(key)
    except Exception:  # noqa: BLE001 - the key's own __str__
        text = f"<{_type_name(key)}>"
    if _ADDRESS in text and not isinstance(key, str):
        text = f"<{_type_name(key)}>"
    whole = text[:_MAX_FOREIGN].encode("utf-8", "replace").decode("utf-8")
    return whole, isinstance(key, str) and whole == text


def _type_name(value: Any) -> str:
    return type(value).__qualname__
