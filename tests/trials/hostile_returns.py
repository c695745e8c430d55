"""Entrypoints that lie with what they return. Copied into a project of its own and run there."""

import decimal
import fractions
import time
from collections.abc import Mapping

import watcherml

GOOD = {"steps_completed": 50, "val_loss": 0.25}


def honest(config, max_steps=None):
    return dict(GOOD)


def negative(config, max_steps=None):
    return {**GOOD, "steps_completed": -5}


def fraction_of_a_step(config, max_steps=None):
    return {**GOOD, "steps_completed": 0.99}


def endless_steps(config, max_steps=None):
    return {**GOOD, "steps_completed": 1e308}


def endless_marks(config, max_steps=None):
    watcherml.step(10**30)
    return dict(GOOD)


def more_than_marked(config, max_steps=None):
    for _ in range(7):
        watcherml.step()
    return dict(GOOD)


def infinite(config, max_steps=None):
    return {**GOOD, "val_loss": float("-inf")}


def boolean_and_text(config, max_steps=None):
    return {"steps_completed": "50", "val_loss": True}


def complex_number(config, max_steps=None):
    return {**GOOD, "val_loss": 0.25 + 0j}


def odd_numbers(config, max_steps=None):
    import numpy

    return {
        "steps_completed": numpy.int64(50),
        "val_loss": decimal.Decimal("0.25"),
        "half": numpy.float16(0.5),
        "third": fractions.Fraction(1, 3),
        "none_dim": numpy.array(2.0),
    }


def one_dimension(config, max_steps=None):
    import numpy

    return {**GOOD, "val_loss": numpy.array([0.25])}


def nested(config, max_steps=None):
    return {**GOOD, "validation": {"loss": 0.25}}


def many(config, max_steps=None):
    return {**GOOD, **{f"m{index}": 0.0 for index in range(10_000)}}


def long_name(config, max_steps=None):
    return {**GOOD, "x" * 10_000: 1.0}


def two_line_name(config, max_steps=None):
    return {**GOOD, "val_loss\n<script>": 1.0}


def name_is_a_number(config, max_steps=None):
    return {**GOOD, 7: 1.0}


class Unfloatable(float):
    def __float__(self):
        raise OSError("no float of mine")


def float_raises(config, max_steps=None):
    return {**GOOD, "val_loss": Unfloatable(0.25)}


class Unprintable:
    def __repr__(self):
        raise SystemError("no text of mine")


def repr_raises(config, max_steps=None):
    return {**GOOD, "val_loss": Unprintable()}


class Odd(Mapping):
    def __init__(self, items):
        self._items = items

    def __getitem__(self, key):
        return 0.25

    def __iter__(self):
        return iter(())

    def __len__(self):
        return 1

    def items(self):
        return self._items()


def items_raise(config, max_steps=None):
    def items():
        raise KeyboardInterrupt

    return Odd(items)


def items_without_end(config, max_steps=None):
    return Odd(lambda: ((f"m{index}", 0.25) for index in iter(int, 1)))


def items_hang(config, max_steps=None):
    return Odd(lambda: time.sleep(600))


class Shifting(dict):
    """Says something else each time it is asked."""

    asked = 0

    def __len__(self):
        return -1

    def items(self):
        Shifting.asked += 1
        return [("steps_completed", 10.0**Shifting.asked)]

    def get(self, key, default=None):
        return 1e9

    __getitem__ = get


def shifting(config, max_steps=None):
    return Shifting(steps_completed=3, val_loss=0.25)


class Name(str):
    __slots__ = ()

    def __str__(self):
        return "val_loss"

    def __eq__(self, other):
        return True

    def __hash__(self):
        return hash("val_loss")


def name_in_disguise(config, max_steps=None):
    return {"steps_completed": 50, Name("loss"): 0.25}


def config_is_spoilt(config, max_steps=None):
    config.clear()
    config["batch_size"] = 10**9
    return dict(GOOD)


class AsClass:
    def __init__(self, config, max_steps=None):
        pass


async def as_coroutine(config, max_steps=None):
    return dict(GOOD)


def as_generator(config, max_steps=None):
    yield dict(GOOD)


def torch_without_a_step(config, max_steps=None):
    import torch

    return {"steps_completed": torch.tensor(50), "val_loss": torch.tensor(0.25, dtype=torch.bfloat16)}
