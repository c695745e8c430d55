"""The rules of sealed documents, read off their annotations: as JSON Schema (2020-12), and in words.

A schema says what one field may hold. Rules across fields (``Record.check``), canonical bytes and the digest are
checked by the decoder alone: what a schema refuses the decoder refuses too, and not the other way round.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from watcherml.sealed.fields import Bound, Digest, Items, JsonMarker, Later, Text
from watcherml.sealed.record import Record, fields_of, later_fields

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN: dict[Any, tuple[str, str]] = {
    int: ("integer", "an integer"), float: ("number", "a number"), str: ("string", "text"),
    bool: ("boolean", "true or false"),
}  # fmt: skip


def json_schema(cls: type[Record]) -> dict[str, Any]:
    """Return the JSON Schema of the documents that ``to_json`` of a class with a ``KIND`` writes."""
    parts: dict[str, Any] = {}
    value = _schema(cls, parts)
    envelope = {
        "kind": {"const": cls.KIND},
        "version": {"const": cls.VERSION, "type": "integer"},
        "digest": {
            **_schema(Digest, parts),
            "description": "SHA-256 over kind, version and canonical value (RFC 8785)",
        },
        "value": value,
    }
    return {
        "$schema": DIALECT,
        "$id": f"urn:watcherml:{cls.KIND}:{cls.VERSION}",
        "title": cls.KIND,
        "description": summary(cls),
        **_object(envelope, frozenset()),
        "$defs": parts,
    }


def summary(cls: type[Record]) -> str:
    """Return the first paragraph of a class's docstring as one line."""
    return " ".join((cls.__doc__ or "").split("\n\n")[0].split()).replace("``", "`")


def parts_of(cls: type[Record]) -> dict[str, dict[str, str]]:
    """Return the fields of a class and of every record inside it: name of the class -> key -> what it may hold."""
    found: dict[str, dict[str, str]] = {}
    waiting: list[type[Record]] = [cls]
    while waiting:
        one = waiting.pop(0)
        if one.__name__ not in found:
            found[one.__name__] = {key: in_words(annotation) for key, annotation in fields_of(one).items()}
            waiting += [inner for annotation in fields_of(one).values() for inner in _records_in(annotation)]
    return found


def in_words(annotation: Any) -> str:
    """Return what a field may hold as words: kind of value, bounds, and whether it may be null."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _bounded_words(inner[0], inner[1:])
    if origin in (Union, types.UnionType):
        return ", or ".join("null" if one is type(None) else in_words(one) for one in inner)
    if origin is Literal:
        return "one of " + ", ".join(map(str, inner)) if len(inner) > 1 else str(inner[0])
    if origin is tuple:
        return f"a list of: {in_words(inner[0])}"
    if _is_mapping(origin):
        return f"an object; keys: {in_words(inner[0])}; values: {in_words(inner[1])}"
    return _PLAIN[annotation][1] if annotation in _PLAIN else str(annotation.__name__)


def _bounded_words(inner: Any, marks: tuple[Any, ...]) -> str:
    if any(isinstance(mark, Later) for mark in marks):
        return _bounded_words(inner, _without_later(marks)) + ", or absent"
    if any(isinstance(mark, JsonMarker) for mark in marks):
        return "any JSON value"
    told = ", ".join(mark.wanted() for mark in marks)
    return told if inner is str and told else ", ".join(filter(None, (in_words(inner), told)))


def _without_later(marks: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(mark for mark in marks if not isinstance(mark, Later))


def _records_in(annotation: Any) -> list[type[Record]]:
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return [annotation]
    return [found for one in get_args(annotation) for found in _records_in(one)]


def _schema(annotation: Any, parts: dict[str, Any]) -> dict[str, Any]:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _bounded(inner[0], inner[1:], parts)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(one, parts) for one in inner]}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin is tuple:
        return {"type": "array", "items": _schema(inner[0], parts)}
    if _is_mapping(origin):
        keys, values = _schema(inner[0], parts), _schema(inner[1], parts)
        return {"type": "object", "propertyNames": keys, "additionalProperties": values}
    if annotation is type(None):
        return {"type": "null"}
    if annotation in _PLAIN:
        return {"type": _PLAIN[annotation][0]}
    return _part(annotation, parts)


def _part(cls: type[Record], parts: dict[str, Any]) -> dict[str, Any]:
    if cls.__name__ not in parts:
        parts[cls.__name__] = {}  # taken before its fields are looked at, should a record ever hold its own kind
        properties = {key: _schema(annotation, parts) for key, annotation in fields_of(cls).items()}
        parts[cls.__name__] = {"description": summary(cls), **_object(properties, later_fields(cls))}
    return {"$ref": f"#/$defs/{cls.__name__}"}


def _object(properties: Mapping[str, Any], optional: frozenset[str]) -> dict[str, Any]:
    # A missing key is never read as null, but for fields that came later, and an unknown one is refused.
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [key for key in properties if key not in optional],
        "additionalProperties": False,
    }


def _bounded(inner: Any, marks: tuple[Any, ...], parts: dict[str, Any]) -> dict[str, Any]:
    if any(isinstance(mark, JsonMarker) for mark in marks):
        return {}
    found = _schema(inner, parts)
    for mark in _without_later(marks):
        found.update(_limits(mark, "object" if _is_mapping(get_origin(inner)) else "array"))
    return found


def _limits(mark: Any, container: str) -> dict[str, Any]:
    if isinstance(mark, Bound):
        pairs = {"minimum": mark.low, "maximum": mark.high, "description": mark.unit or None}
    elif isinstance(mark, Text):
        # Not "$": to some dialects it also matches before a line feed at the end.
        whole = None if mark.pattern is None else rf"^(?:{mark.pattern})(?![\s\S])"
        pairs = {"minLength": mark.low, "maxLength": mark.high, "pattern": whole}
        pairs["description"] = mark.wanted_words or None
    elif isinstance(mark, Items):
        names = ("minItems", "maxItems") if container == "array" else ("minProperties", "maxProperties")
        pairs = dict(zip(names, (mark.low, mark.high), strict=True))
    else:
        raise TypeError(f"no schema for {mark!r}")
    return {key: value for key, value in pairs.items() if value is not None}


def _is_mapping(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Mapping)
