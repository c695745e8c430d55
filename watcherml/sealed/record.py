"""``Record``: the base of every sealed value, with the one strict decoder.

A record is a frozen, slotted dataclass. What its fields may hold is said once, in the annotations; the
same plan checks values built in Python and values read from a file. Nothing is coerced: ``True`` is no
integer, ``"10"`` is no number, a missing key is not ``None``. Errors name the path, what was expected
and what came.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from watcherml.errors import InvalidRecord, InvalidValue
from watcherml.sealed.canonical import MAX_DEPTH, canonical_bytes, digest, parse_json
from watcherml.sealed.fields import JsonMarker, Later

R = TypeVar("R", bound="Record")

_kinds: dict[str, type[Record]] = {}


class Record:
    """Base of sealed values; subclasses are ``@dataclass(frozen=True, slots=True, eq=False)``.

    ``KIND`` and ``VERSION`` go into the digest and into the document, so that one kind can never be
    read as another. A subclass adds rules that span fields in ``check``; they run on every construction.
    """

    __slots__ = ("_digest",)
    KIND: ClassVar[str] = ""
    VERSION: ClassVar[int] = 1
    _digest: str

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.KIND:
            _kinds[cls.KIND] = cls

    def __post_init__(self) -> None:
        name = type(self).__name__
        for key, (field, annotation) in _plan(type(self)).items():
            value = _coerce(annotation, getattr(self, field), f"{name}.{key}", False)
            object.__setattr__(self, field, value)
        self.check()

    def check(self) -> None:
        """Raise ``InvalidValue`` if a rule across fields is broken; the default has none."""

    def __eq__(self, other: object) -> bool:
        # By digest, which covers the kind, and not by ==, to which True is 1.
        return isinstance(other, Record) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_data, (self.to_data(),)

    @property
    def digest(self) -> str:
        """The SHA-256 over kind, version and canonical bytes, as ``sha256:<hex>``."""
        try:
            return self._digest
        except AttributeError:  # computed once: every field is frozen to its last leaf
            made = digest(self.KIND or type(self).__name__, self.VERSION, self.to_data())
            object.__setattr__(self, "_digest", made)
            return made

    def to_data(self) -> dict[str, Any]:
        """Return the fields as plain JSON values (fresh dicts and lists), ``Later`` ones only if they are set."""
        data = {key: thaw(getattr(self, field)) for key, (field, _) in _plan(type(self)).items()}
        for key in _later(type(self)):
            if data[key] is None:
                del data[key]
        return data

    def to_json(self) -> str:
        """Return the canonical document: kind, version, digest, value."""
        document = {"kind": self.KIND, "version": self.VERSION, "digest": self.digest, "value": self.to_data()}
        return canonical_bytes(document).decode("utf-8")

    def replace(self: R, **changes: Any) -> R:
        """Return a copy with some fields changed, checked like any new record."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    @classmethod
    def from_data(cls: type[R], data: Any, path: str = "$") -> R:
        """Decode plain JSON values; ``InvalidRecord`` names path, expectation and finding."""
        if not isinstance(data, Mapping):
            raise InvalidRecord(path, expected=f"an object ({cls.__name__})", got=_describe(data))
        plan = _plan(cls)
        unknown = sorted(str(key) for key in data if key not in plan)
        if unknown:
            raise InvalidRecord(
                path, expected=f"only the keys {', '.join(plan)}", got=f"the unknown key {unknown[0]!r}"
            )
        missing = [key for key in plan if key not in data and key not in _later(cls)]
        if missing:
            raise InvalidRecord(f"{path}.{missing[0]}", expected="a value", got="no such key")
        values = {
            field: _coerce(annotation, data[key], f"{path}.{key}", True)
            for key, (field, annotation) in plan.items()
            if key in data
        }
        try:
            return cls(**values)
        except InvalidRecord:
            raise
        except InvalidValue as error:
            where = f"{path} ({error.message})"
            raise InvalidRecord(where, expected=error.expected, got=error.got, remedy=error.remedy) from None

    @classmethod
    def from_json(cls: type[R], text: str | bytes) -> R:
        """Decode a document made by ``to_json``.

        Raises ``InvalidRecord`` for another kind or version, a wrong digest, and bytes that are not canonical.
        """
        document = parse_json(text)
        expected = {"kind", "version", "digest", "value"}
        if not isinstance(document, dict) or set(document) != expected:
            got = ", ".join(sorted(document)) if isinstance(document, dict) else _describe(document)
            raise InvalidRecord("$", expected="an object with the keys digest, kind, value, version", got=got[:200])
        if document["kind"] != cls.KIND:
            raise InvalidRecord("$.kind", expected=repr(cls.KIND), got=_describe(document["kind"]))
        if document["version"] is True or document["version"] != cls.VERSION:
            raise InvalidRecord("$.version", expected=str(cls.VERSION), got=_describe(document["version"]))
        value = cls.from_data(document["value"], "$.value")
        if document["digest"] != value.digest:
            raise InvalidRecord(
                "$.digest",
                expected=value.digest,
                got=_describe(document["digest"]),
                remedy="The document was changed after it was sealed.",
            )
        raw = text.encode("utf-8") if isinstance(text, str) else text
        if raw.strip() != value.to_json().encode("utf-8"):
            raise InvalidRecord("$", expected="canonical JSON (RFC 8785) as it was written", got="another spelling")
        return value


def checked(annotation: Any, value: Any, path: str) -> Any:
    """Return a value that keeps an annotated field type such as ``CampaignId``; ``InvalidRecord`` otherwise."""
    return _coerce(annotation, value, path, False)


def kinds() -> Mapping[str, type[Record]]:
    """Return the record classes by kind, as far as they have been imported."""
    return types.MappingProxyType(_kinds)


def fields_of(cls: type[Record]) -> Mapping[str, Any]:
    """Return the annotation of each key of a record's documents."""
    return {key: annotation for key, (_, annotation) in _plan(cls).items()}


def later_fields(cls: type[Record]) -> frozenset[str]:
    """Return the keys that a record's documents may lack: those that came ``Later``."""
    return _later(cls)


def freeze(value: Any) -> Any:
    """Return a JSON value with dicts as read-only mappings and lists as tuples."""
    if isinstance(value, Mapping):
        return types.MappingProxyType({key: freeze(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return tuple(freeze(item) for item in value)
    return value


def thaw(value: Any) -> Any:
    """Return plain dicts and lists for a frozen JSON value or a record."""
    if isinstance(value, Record):
        return value.to_data()
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [thaw(item) for item in value]
    return value


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


def _plan(cls: Any) -> dict[str, tuple[str, Any]]:
    # A key that is a Python keyword ("class") belongs to a field with a trailing underscore.
    hints = _hints(cls)
    return {field.name.rstrip("_"): (field.name, hints[field.name]) for field in dataclasses.fields(cls)}


def _later(cls: Any) -> frozenset[str]:
    return _find_later(cls)


@functools.cache
def _find_later(cls: Any) -> frozenset[str]:
    return frozenset(
        key
        for key, (_, annotation) in _plan(cls).items()
        if get_origin(annotation) is Annotated and any(isinstance(mark, Later) for mark in get_args(annotation)[1:])
    )


def _coerce(annotation: Any, value: Any, path: str, from_json: bool) -> Any:
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *marks = get_args(annotation)
        if any(isinstance(mark, JsonMarker) for mark in marks):
            try:
                frozen = freeze(value)  # first, so that what is checked is what is kept
            except RecursionError:
                raise InvalidRecord(path, expected=f"at most {MAX_DEPTH} levels of nesting", got="more") from None
            canonical_bytes(frozen, path)  # refuses what JSON cannot say
            return frozen
        value = _coerce(inner, value, path, from_json)
        for mark in marks:
            if value is not None and not mark.holds(value):
                raise InvalidRecord(path, expected=mark.wanted(), got=_describe(value))
        return value
    if origin in (Union, types.UnionType):
        return _coerce_union(get_args(annotation), value, path, from_json)
    if origin is Literal:
        if not any(value == option and type(value) is type(option) for option in get_args(annotation)):
            raise InvalidRecord(
                path, expected="one of " + ", ".join(map(repr, get_args(annotation))), got=_describe(value)
            )
        return value
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise InvalidRecord(path, expected="a list", got=_describe(value))
        item = get_args(annotation)[0]
        return tuple(_coerce(item, one, f"{path}[{index}]", from_json) for index, one in enumerate(value))
    if origin is Mapping or (isinstance(origin, type) and issubclass(origin, Mapping)):
        if not isinstance(value, Mapping):
            raise InvalidRecord(path, expected="an object", got=_describe(value))
        key_type, item = get_args(annotation)
        return types.MappingProxyType(
            {
                _coerce(key_type, key, f"{path} key", from_json): _coerce(item, one, f"{path}.{key}", from_json)
                for key, one in value.items()
            }
        )
    return _coerce_plain(annotation, value, path, from_json)


def _coerce_union(options: tuple[Any, ...], value: Any, path: str, from_json: bool) -> Any:
    if value is None and type(None) in options:
        return None
    rest = [option for option in options if option is not type(None)]
    if len(rest) == 1:
        return _coerce(rest[0], value, path, from_json)
    for option in rest:
        try:
            return _coerce(option, value, path, from_json)
        except InvalidRecord:
            continue
    raise InvalidRecord(path, expected=f"one of {len(rest)} kinds of value", got=_describe(value))


def _coerce_plain(annotation: Any, value: Any, path: str, from_json: bool) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, Record):
        if isinstance(value, annotation):
            return value
        if from_json:
            return annotation.from_data(value, path)
        raise InvalidRecord(path, expected=f"a {annotation.__name__}", got=_describe(value))
    if annotation is float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not _finite(value):
            raise InvalidRecord(path, expected="a finite number", got=_describe(value))
        return float(value)
    if annotation in (int, str, bool):
        if type(value) is not annotation:
            words = {int: "an integer", str: "text", bool: "true or false"}
            raise InvalidRecord(path, expected=words[annotation], got=_describe(value))
        if annotation is str:
            canonical_bytes(value, path)
        return value
    raise TypeError(f"{path}: no decoder for {annotation!r}")


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond every double
        return False


def _describe(value: Any) -> str:
    try:
        text = repr(thaw(value))
    except ValueError:  # Python refuses to print integers of thousands of digits
        text = "a number of thousands of digits"
    except RecursionError:
        text = f"more than {MAX_DEPTH} levels of nesting"
    return f"{text if len(text) <= 80 else text[:77] + '...'} ({type(value).__name__})"
