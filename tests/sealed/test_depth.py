"""Values that nest too deep are refused by name, however deep they are and wherever they stand."""

import pytest
from builders import chain, good_trials, plan

from watcherml.errors import InvalidRecord, InvalidValue
from watcherml.protocol.verdict import RecoveryChain

PLAN = plan()
DOCUMENT = chain(PLAN, good_trials(PLAN)).to_json()


def nested(levels):
    value = 1
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize("levels", [65, 300, 600, 900, 50_000])
@pytest.mark.parametrize("place", ['"config":{"batch_size":', '"cautions":', '"logging_gap":'])
def test_a_document_that_nests_too_deep_is_refused(levels, place):
    head, found, tail = DOCUMENT.partition(place)
    text = f"{head}{place}{'[' * levels}{']' * levels},{tail.partition(',')[2]}"
    assert found
    with pytest.raises(InvalidValue) as refused:
        RecoveryChain.from_json(text)
    assert len(str(refused.value)) < 2_000


@pytest.mark.parametrize("levels", [65, 900, 20_000])
def test_a_python_value_that_nests_too_deep_is_refused(levels):
    with pytest.raises(InvalidValue, match="at most 64 levels of nesting"):
        PLAN.source.replace(config={"deep": nested(levels)})
    with pytest.raises(InvalidRecord, match="expected"):
        PLAN.source.replace(logging_gap=nested(levels))
