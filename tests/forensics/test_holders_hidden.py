"""Memory that no plain attribute shows: slots, caches, iterators, classes, modules, and autograd graphs."""

import contextvars
import functools
import itertools
import threading
import types

import numpy as np
import pytest
import torch

from watcherml.forensics.holders import holders, holders_of

BYTES = 8_000


def array():
    return np.zeros(1_000)


class Slotted:
    __slots__ = ("held",)

    def __init__(self):
        self.held = array()


class Refusing(type):
    def __getattribute__(cls, name):
        raise RuntimeError(name)


def thread_local():
    made = threading.local()
    made.held = array()
    return made


def context_variable():
    made = contextvars.ContextVar("made")
    made.set(array())
    return made


def cached(cache):
    @cache
    def load(number):
        return array()

    load(1)
    return load


def failing():
    held = array()
    raise ValueError(len(held))


def kept(what):
    try:
        failing()
    except ValueError as error:
        trace = error.__traceback__
        return trace if what == "traceback" else trace.tb_next.tb_frame


def of_main(kind=type):
    return types.new_class(
        "Store", (), {"metaclass": kind}, lambda body: body.update(held=array(), __module__="__main__")
    )


def module(file):
    made = types.ModuleType("training")
    made.__file__, made.held = file, array()
    return made


HOMES = {
    "slots": Slotted,
    "a local of this thread": thread_local,
    "a context variable": context_variable,
    "lru_cache": lambda: cached(functools.lru_cache),
    "cache": lambda: cached(functools.cache),
    "an iterator of a list": lambda: iter([array()]),
    "map": lambda: map(len, [array()]),
    "zip": lambda: zip([array()], [1], strict=False),
    "chain": lambda: itertools.chain([array()], [1]),
    "a generator expression": lambda: (one for one in [array()]),
    "a view of a dict": lambda: {"held": array()}.values(),
    "a read-only mapping": lambda: types.MappingProxyType({"held": array()}),
    "a kept traceback": lambda: kept("traceback"),
    "a kept frame": lambda: kept("frame"),
    "a class of the notebook": of_main,
    "a class whose metaclass refuses": lambda: of_main(Refusing),
}


@pytest.mark.parametrize("home", HOMES)
def test_what_it_holds_is_found(home):
    (found,) = holders({"name": HOMES[home]()})
    assert (found.name, found.bytes) == ("name", BYTES)


def test_a_module_of_the_project_is_looked_into_and_an_installed_one_is_not():
    own, installed = module("/home/me/training.py"), module("/lib/python3/site-packages/training.py")
    assert [one.name for one in holders({"own": own, "installed": installed, "torch": torch})] == ["own.held"]


def test_what_is_held_beside_the_names_counts_once_and_for_the_name():
    shared, alone = array(), array()
    found = holders_of({"mine": shared}, {"step.shared": shared, "step.alone": alone})
    assert [(one.name, one.bytes) for one, _ in found] == [("mine", BYTES), ("step.alone", BYTES)]


def test_an_autograd_graph_is_named_in_a_container_as_well():
    loss = (torch.ones(3, requires_grad=True) * 2).sum()
    (found,) = holders({"losses": [loss]})
    assert found.what == "list with 1 tensor or array, with an autograd graph"
