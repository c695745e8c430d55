"""Canonical bytes agree with an independent RFC 8785 implementation, and refuse what JSON cannot say."""

import json
import math

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from watcherml.errors import InvalidRecord, InvalidValue
from watcherml.sealed.canonical import canonical_bytes, digest, parse_json

text = st.text(st.characters(exclude_categories=("Cs",)))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text
)
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(text, inner), max_leaves=20)


@given(values)
@settings(max_examples=400)
def test_bytes_equal_the_oracle(value):
    assert canonical_bytes(value) == rfc8785.dumps(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
@settings(max_examples=1500)
def test_every_double_is_spelled_like_the_oracle_and_reads_back(value):
    spelled = canonical_bytes(value)
    assert spelled == rfc8785.dumps(value)
    assert float(spelled) == value


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        (1e21, "1e+21"),
        (123456789012345680000.0, "123456789012345680000"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (-0.0, "0"),
        (10.0, "10"),
        (0.1, "0.1"),
        (333333333.33333329, "333333333.3333333"),
    ],
)
def test_number_spellings(value, spelled):
    assert canonical_bytes(value) == spelled.encode()


def test_keys_are_ordered_by_utf16_units_not_by_code_point():
    # U+1F600 is a surrogate pair (D83D ...) and sorts before U+FB33 in UTF-16, after it by code point.
    assert canonical_bytes({"\ufb33": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\ufb33":1}'.encode()


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, math.nan]}, "$.a[1]"),
        ({"a": math.inf}, "$.a"),
        ([2**53], "$[0]"),
        ({1: 2}, "$"),
        ({"a": {1, 2}}, "$.a"),
        ({"a": "\ud800"}, "$.a"),
        (b"bytes", "$"),
    ],
)
def test_what_json_cannot_say_is_refused_by_path(value, path):
    with pytest.raises(InvalidValue) as refused:
        canonical_bytes(value)
    assert refused.value.message == path


def test_nesting_is_bounded():
    value = []
    for _ in range(80):
        value = [value]
    with pytest.raises(InvalidValue, match="levels of nesting"):
        canonical_bytes(value)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":2}',
        '{"a":{"b":1,"b":1}}',
        "[NaN]",
        "[Infinity]",
        "[1e999]",
        "{",
        "",
        b"\xff{}",
        "[" * 5000,
        "9" * 6000,
    ],
)
def test_strict_parser_refuses(text):
    with pytest.raises(InvalidRecord):
        parse_json(text)


@given(values)
def test_parser_reads_back_what_was_spelled(value):
    assert canonical_bytes(parse_json(canonical_bytes(value))) == canonical_bytes(value)
    assert parse_json(json.dumps(value)) == json.loads(json.dumps(value))


def test_digest_separates_kinds_and_versions():
    assert digest("plan", 1, {}) != digest("verdict", 1, {})
    assert digest("plan", 1, {}) != digest("plan", 2, {})
    assert digest("plan", 1, {"b": 1, "a": 2}) == digest("plan", 1, {"a": 2, "b": 1})
