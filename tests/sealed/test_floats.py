"""Whole floats go through RFC 8785 as integers and come back as what they were."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from watcherml.sealed.canonical import canonical_bytes
from watcherml.sealed.floats import restore_floats, whole_floats

NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


def same(first, second):
    """Tell whether two JSON values are the same down to the type of each number."""
    if isinstance(first, float) and math.copysign(1, first) < 0 and first == 0:
        first = 0.0  # -0 is spelled 0, and has no sign afterwards
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True) or (
        type(first) is type(second)
        and (
            (
                isinstance(first, dict)
                and first.keys() == second.keys()
                and all(same(first[k], second[k]) for k in first)
            )
            or (isinstance(first, list) and len(first) == len(second) and all(map(same, first, second)))
            or first == second
        )
    )


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=5))
def test_a_configuration_comes_back_as_it_was(config):
    sent = json.loads(canonical_bytes(config))
    assert same(config, restore_floats(sent, whole_floats(config)))


def test_what_the_pointers_are():
    config = {"limit": 1.0, "steps": 1, "a/b": {"~": [2.0, 3, 2.5]}, "x": True}
    assert whole_floats(config) == ("/limit", "/a~1b/~0/0")


def test_a_pointer_to_something_else_changes_nothing():
    assert restore_floats({"a": "x", "b": [1]}, ["/a", "/b/7", "/c/d", "/b/x", "/b/\u0664"]) == {"a": "x", "b": [1]}
