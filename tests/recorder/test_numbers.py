"""What counts as a number: metrics, and steps."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest

import watcherml
from watcherml.errors import InvalidValue
from watcherml.recorder.numbers import as_number

numpy = pytest.importorskip("numpy")


class Own(float):
    pass


class Silent:
    ndim = 0

    def item(self):
        raise RuntimeError("nothing here")


NUMBERS = {
    "int": (3, 3.0),
    "float": (0.5, 0.5),
    "a subclass": (Own(0.5), 0.5),
    "a huge int": (10**400, math.inf),
    "a huge negative int": (-(10**400), -math.inf),
    "Decimal": (Decimal("0.1"), 0.1),
    "a huge Decimal": (Decimal("1e999"), math.inf),
    "Decimal infinity": (Decimal("-Infinity"), -math.inf),
    "Decimal NaN": (Decimal("NaN"), math.nan),
    "Decimal signalling NaN": (Decimal("sNaN"), math.nan),
    "Fraction": (Fraction(1, 3), 1 / 3),
    "a huge Fraction": (Fraction(10**400), math.inf),
    "a tiny Fraction": (Fraction(1, 10**400), 0.0),
    "numpy integer": (numpy.int8(-3), -3.0),
    "numpy float16": (numpy.float16(0.5), 0.5),
    "numpy float64": (numpy.float64(0.25), 0.25),
    "numpy longdouble": (numpy.longdouble("0.5"), 0.5),
    "numpy array without dimensions": (numpy.array(7), 7.0),
    "numpy array of objects": (numpy.array(Decimal("0.5"), dtype=object), 0.5),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_a_number_of_any_library_is_the_nearest_float(case):
    value, expected = NUMBERS[case]
    found = as_number(value, "x")
    assert type(found) is float
    assert found == expected or (math.isnan(found) and math.isnan(expected))


NO_NUMBERS = {
    "text": "0.5",
    "text with a NUL": "0.5\0",
    "bytes": b"1",
    "None": None,
    "True": True,
    "numpy bool": numpy.bool_(True),
    "complex": 1j,
    "numpy complex": numpy.complex128(1j),
    "an array": numpy.ones(1),
    "a list": [1.0],
    "numpy text": numpy.str_("1"),
    "numpy date": numpy.datetime64("2020-01-01"),
    "no value": Silent(),
}


@pytest.mark.parametrize("case", NO_NUMBERS)
def test_what_is_no_number_is_refused_by_name(case):
    with pytest.raises(InvalidValue, match=r"metric 'loss'.*expected a number"):
        as_number(NO_NUMBERS[case], "metric 'loss'")


def test_torch_numbers():
    torch = pytest.importorskip("torch")
    assert as_number(torch.tensor(0.5, dtype=torch.bfloat16, requires_grad=True), "x") == 0.5
    assert as_number(torch.tensor(3), "x") == 3.0
    for value in (torch.ones(1), torch.tensor(True), torch.tensor(1j), torch.tensor(1.0, device="meta")):
        with pytest.raises(InvalidValue, match="expected a number"):
            as_number(value, "x")


def test_exact_numbers_are_metrics_and_steps(storage):
    with watcherml.Run("p", {}, storage, quiet=True) as run:
        run.log({"a": Decimal("0.125"), "b": Fraction(1, 4)}, step=Decimal(7))
        with pytest.raises(InvalidValue, match="step"):
            run.log_metric("a", 1.0, step=Fraction(1, 2))
    points = [(point["name"], point["value"], point["step"]) for point in storage.get_metrics(run.run_id)]
    assert points == [("a", 0.125, 7), ("b", 0.25, 7)]


class Unspeakable:
    def __repr__(self):
        raise RuntimeError("hostile")


class Answering:
    def __getattr__(self, name):
        raise KeyError(name)


class Unfloatable(float):
    def __float__(self):
        raise RuntimeError("hostile")


class Unhashable(str):
    def __hash__(self):
        raise RuntimeError("hostile")


@pytest.mark.parametrize("wrong", [Unspeakable(), Answering(), Unfloatable(1)], ids=lambda one: type(one).__name__)
def test_an_argument_that_raises_when_it_is_looked_at_is_told_by_its_field(storage, wrong):
    with watcherml.Run("demo", {}, storage, quiet=True) as run:
        for field, call in (
            ("metric 'x'", lambda: run.log_metric("x", wrong)),
            ("step", lambda: run.log_metric("x", 1.0, wrong)),
            ("metric name", lambda: run.log_metric(wrong, 1.0)),
        ):
            with pytest.raises(InvalidValue, match=field):
                call()
        run.log_metric(Unhashable("loss"), 0.5)
    assert run.problems == [] and run.last_metrics == {"loss": 0.5}


def test_a_masked_value_is_no_zero():
    with pytest.raises(InvalidValue, match="it is masked"):
        as_number(numpy.ma.masked, "metric 'loss'")
    assert as_number(numpy.ma.array(3.0), "metric 'loss'") == 3.0
