"""The one strict decoder: what it accepts, and one row for each way to lie to it."""

import copy
import dataclasses
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watcherml.errors import InvalidRecord, InvalidValue
from watcherml.sealed.fields import Bound, ByteCount, Digest, Json, MetricName, RunId, Seconds
from watcherml.sealed.record import Record, thaw


@dataclass(frozen=True, slots=True, eq=False)
class Inner(Record):
    name: MetricName
    limit_bytes: ByteCount | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Outer(Record):
    KIND: ClassVar[str] = "test-outer"
    run_id: RunId
    count: Annotated[int, Bound(0, 10)]
    wait: Seconds
    flag: bool
    mode: Literal["fast", "slow"]
    inners: tuple[Inner, ...]
    limits: Mapping[str, float]
    config: Json
    parent: Digest | None

    def check(self) -> None:
        if self.mode == "fast" and self.count > 5:
            raise InvalidValue("Outer.count", expected="at most 5 in fast mode", got=str(self.count))


def outer(**changes):
    values = {
        "run_id": "demo-01",
        "count": 3,
        "wait": 1.5,
        "flag": True,
        "mode": "fast",
        "inners": (Inner("loss", 7), Inner("acc")),
        "limits": {"a": 1.0},
        "config": {"lr": [0.1, None, {"deep": True}]},
        "parent": None,
    }
    values.update(changes)
    return Outer(**values)


def test_document_reads_back_equal():
    value = outer(parent="sha256:" + "ab" * 32)
    again = Outer.from_json(value.to_json())
    assert again == value and hash(again) == hash(value) and again.digest == value.digest
    assert isinstance(again.inners[0], Inner)


def test_values_are_deeply_read_only():
    value = outer()
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.count = 4
    with pytest.raises(TypeError):
        value.config["lr"] = 1
    with pytest.raises(TypeError):
        value.config["lr"][2]["deep"] = False
    assert thaw(value.config) == {"lr": [0.1, None, {"deep": True}]}


def test_later_changes_to_the_argument_do_not_reach_the_record():
    config = {"a": [1]}
    value = outer(config=config)
    before = value.digest
    config["a"].append(2)
    assert value.digest == before


def set_value(*path_and_value):
    *path, value = path_and_value

    def change(data):
        target = data
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = value

    return change


def drop(key):
    return lambda data: data.pop(key)


LIES = {
    "unknown key": (set_value("extra", 1), "extra"),
    "unknown nested key": (set_value("inners", 0, "extra", 1), "inners[0]"),
    "missing key": (drop("flag"), "flag"),
    "True for an integer": (set_value("count", True), "count"),
    "1 for a boolean": (set_value("flag", 1), "flag"),
    "text for an integer": (set_value("count", "3"), "count"),
    "float for an integer": (set_value("count", 3.5), "count"),
    "text for a number": (set_value("wait", "1.5"), "wait"),
    "boolean for a number": (set_value("wait", True), "wait"),
    "null where none is allowed": (set_value("run_id", None), "run_id"),
    "outside the bound": (set_value("count", 11), "count"),
    "below the bound": (set_value("count", -1), "count"),
    "rule across fields": (set_value("count", 6), "count"),
    "word outside the choice": (set_value("mode", "medium"), "mode"),
    "object for a list": (set_value("inners", {}), "inners"),
    "list for an object": (set_value("limits", []), "limits"),
    "text for an object": (set_value("inners", 0, "loss"), "inners[0]"),
    "bad id": (set_value("run_id", "../../etc"), "run_id"),
    "newline in an id": (set_value("run_id", "a\n"), "run_id"),
    "bad digest": (set_value("parent", "sha256:xyz"), "parent"),
    "upper-case digest": (set_value("parent", "sha256:" + "AB" * 32), "parent"),
    "control character in a name": (set_value("inners", 0, "name", "a\x00b"), "inners[0].name"),
    "negative bytes": (set_value("inners", 0, "limit_bytes", -1), "inners[0].limit_bytes"),
    "boolean in a mapping of numbers": (set_value("limits", "a", False), "limits.a"),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_refused_by_path(lie):
    change, where = LIES[lie]
    data = copy.deepcopy(outer().to_data())
    change(data)
    with pytest.raises(InvalidRecord) as refused:
        Outer.from_data(data)
    assert where in str(refused.value)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda d: d.update(kind="other"), "$.kind"),
        (lambda d: d.update(version=2), "$.version"),
        (lambda d: d.update(version=True), "$.version"),
        (lambda d: d.update(digest="sha256:" + "0" * 64), "$.digest"),
        (lambda d: d["value"].update(count=4), "$.digest"),
        (lambda d: d.update(more=1), "$"),
        (lambda d: d.pop("digest"), "$"),
    ],
)
def test_forged_envelopes_are_refused(change, where):
    document = json.loads(outer().to_json())
    change(document)
    with pytest.raises(InvalidRecord) as refused:
        Outer.from_json(json.dumps(document, sort_keys=True, separators=(",", ":")))
    assert refused.value.message.startswith(where)


def test_another_spelling_of_the_same_value_is_refused():
    document = outer().to_json()
    with pytest.raises(InvalidRecord, match="canonical"):
        Outer.from_json(json.dumps(json.loads(document), indent=2))
    with pytest.raises(InvalidRecord, match="canonical"):
        Outer.from_json(document.replace('"wait":1.5', '"wait":1.50'))
    assert Outer.from_json(document + "\n") == outer()


def test_values_built_in_python_are_checked_too():
    with pytest.raises(InvalidRecord, match="count"):
        outer(count=True)
    with pytest.raises(InvalidValue, match="fast mode"):
        outer(count=9)
    with pytest.raises(InvalidRecord, match="inners"):
        outer(inners=({"name": "loss", "limit_bytes": None},))


def test_records_pickle_to_equal_values():
    assert pickle.loads(pickle.dumps(outer())) == outer()


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    )
)
def test_no_json_value_in_a_typed_field_escapes_the_decoder(value):
    for key in ("run_id", "count", "wait", "flag", "mode", "inners", "limits", "parent"):
        data = outer().to_data()
        data[key] = value
        try:
            decoded = Outer.from_data(data)
        except InvalidRecord:
            continue
        assert decoded.to_data() == data


def test_a_spelling_that_differs_by_the_case_of_an_escape_is_another_spelling():
    text = outer(config={"a": "\x1f"}).to_json()
    assert Outer.from_json(text).config["a"] == "\x1f"
    with pytest.raises(InvalidRecord, match="spelling"):
        Outer.from_json(text.replace("\\u001f", "\\u001F"))


@pytest.mark.parametrize("config", [{"a": float("nan")}, {"a": {1: 2}}, {"a": object()}, {"a": "\ud800"}, {"a": 2**60}])
def test_a_json_field_is_checked_when_the_record_is_made(config):
    with pytest.raises(InvalidValue):
        outer(config=config)


def test_numbers_beyond_every_double_are_refused_as_any_other_wrong_value():
    for number in (10**400, 10**5000):
        with pytest.raises(InvalidRecord, match=r"Outer\.wait"):
            outer(wait=number)


def test_records_are_equal_by_kind_and_content_and_true_is_not_one():
    assert outer() == outer() and outer() != outer(count=2)
    assert outer(config={"a": True}) != outer(config={"a": 1})
    assert Inner("a") != outer() and Inner("a") != "a"


def test_what_a_message_says_has_an_end():
    data = outer().to_data()
    data["k" * 50_000] = 1
    with pytest.raises(InvalidRecord) as refused:
        Outer.from_data(data)
    assert len(str(refused.value)) < 10_000
