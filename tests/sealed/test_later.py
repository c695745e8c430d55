"""Fields that came after documents had been sealed: what was sealed before keeps its bytes and its digest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import pytest

from watcherml.errors import InvalidRecord
from watcherml.sealed.fields import Later
from watcherml.sealed.paths import ABSENT, differing, leaves
from watcherml.sealed.record import Record


@dataclass(frozen=True, slots=True, eq=False)
class Before(Record):
    """As it was sealed once."""

    KIND: ClassVar[str] = "test.later"
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class After(Record):
    """The same kind with a field more."""

    size: int
    words: Annotated[str | None, Later()] = None


OLD = Before(3).to_json()
After.KIND = "test.later"


def test_a_document_sealed_before_is_read_and_written_as_it_was():
    read = After.from_json(OLD)
    assert read.words is None
    assert read.to_json() == OLD and read.digest == Before(3).digest


def test_the_new_field_is_in_the_document_and_under_the_digest_where_it_is_set():
    new = After(3, "a")
    assert new.to_data() == {"size": 3, "words": "a"}
    assert new.digest != After(3).digest
    assert After.from_json(new.to_json()) == new


def test_a_null_that_nobody_sealed_is_another_spelling():
    forged = OLD.replace('"size":3', '"size":3,"words":null')
    with pytest.raises(InvalidRecord, match="canonical"):
        After.from_json(forged)


def test_any_other_field_may_still_not_be_missing_nor_of_another_type():
    with pytest.raises(InvalidRecord, match="size"):
        After.from_data({"words": "a"})
    with pytest.raises(InvalidRecord, match="words"):
        After.from_data({"size": 1, "words": 2})


DIFFERENT = [
    ({"a": 1}, {"a": 1}, []),
    ({"a": 1}, {"a": 1.0}, []),  # one number in JSON
    ({"a": 1}, {"a": True}, [("a", 1, True)]),
    ({"a": None}, {}, [("a", None, ABSENT)]),
    ({"a": {"b": {"c": 1}}}, {"a": {"b": {"c": 2, "d": 3}}}, [("a.b.c", 1, 2), ("a.b.d", ABSENT, 3)]),
    ({"a": {"b": 1}}, {"a": 2}, [("a", {"b": 1}, 2)]),
    ({"a": [1, 2]}, {"a": [1, 3]}, [("a", [1, 2], [1, 3])]),
    ({"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": 1}, {"b": 3}]}, [("a.1.b", 2, 3)]),
    ({"a": [{"b": 1}]}, {"a": [{"b": 1}, {}]}, [("a", [{"b": 1}], [{"b": 1}, {}])]),
    (1, 2, [("", 1, 2)]),
]


@pytest.mark.parametrize(("before", "after", "expected"), DIFFERENT)
def test_what_differs_is_named_by_its_path(before, after, expected):
    assert list(differing(before, after)) == expected


def test_leaves_are_values_by_path():
    assert leaves({"a": {"b": 1, "c": {}}, "d": [{"e": 1}], "f": None}) == {
        "a.b": 1, "a.c": {}, "d": [{"e": 1}], "f": None,
    }  # fmt: skip
    assert leaves(5) == {} and leaves({}) == {}
