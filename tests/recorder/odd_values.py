"""Configurations of odd kinds: how each is stored, and whether its path is marked as lossy.

``ODD`` maps a name to (value, how it is stored, lossy). Where a value is a function, it is called for the value.
"""

import argparse
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import math
import types
import uuid
from pathlib import Path, PurePosixPath


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Settings:
    lr: float = 0.1
    layers: tuple = (1, 2)


class Attrs:
    """As attrs makes them."""

    __attrs_attrs__ = (types.SimpleNamespace(name="lr"), types.SimpleNamespace(name="unset"))

    def __init__(self):
        self.lr = 0.5


class Dumped:
    """As pydantic offers it."""

    def model_dump(self):
        return {"lr": 0.5, "nested": {"a": 1}}


class WithToDict:
    def to_dict(self):
        return {"hidden_size": 8}


class ConfigDict:
    """A mapping in all but its class, as ml_collections has it."""

    def keys(self):
        return iter(["lr"])

    def __getitem__(self, key):
        return {"lr": 0.5}[key]


class Lazy(collections.abc.Mapping):
    """As OmegaConf: a mandatory value that is missing raises when it is read."""

    def __getitem__(self, key):
        if key == "missing":
            raise ValueError("missing mandatory value")
        return 1

    def __iter__(self):
        return iter(["given", "missing", "last"])

    def __len__(self):
        return 3


class Breaking(collections.abc.Mapping):
    def __getitem__(self, key):
        return 1

    def __iter__(self):
        yield "first"
        raise RuntimeError("broken")

    def __len__(self):
        return 2


class Endless(collections.abc.Mapping):
    def __getitem__(self, key):
        return 1

    def __iter__(self):
        number = 0
        while True:
            yield f"k{number}"
            number += 1

    def __len__(self):
        return 1


class ReprRaises:
    def __repr__(self):
        raise RuntimeError("no repr")

    def __str__(self):
        raise RuntimeError("no text")


class StrIsNumber:
    def __str__(self):
        return 5


class AnswersAll:
    """A mock: every attribute is there."""

    def __getattr__(self, name):
        return self

    def __call__(self, *a, **k):
        return self


class LyingText(str):
    def __str__(self):
        raise RuntimeError("no")

    def encode(self, *a):
        return 3

    def __len__(self):
        return -1


class LyingNumber(int):
    def __int__(self):
        return "x"

    def __abs__(self):
        raise RuntimeError("no")


class HostileKey:
    def __str__(self):
        raise RuntimeError("no")


class ClassRaises:
    @property
    def __class__(self):
        raise RuntimeError("no class")


def cycle():
    value = {"a": 1}
    value["self"] = value
    return value


def nested(depth):
    value = "bottom"
    for _ in range(depth):
        value = {"d": value}
    return value


Pair = collections.namedtuple("Pair", "a b")
DEEP = nested(32)["d"]

ODD = {
    "path": (Path("data") / "x", "data/x", True),
    "pure_path": (PurePosixPath("/a"), "/a", True),
    "nan": (math.nan, "nan", True),
    "inf": (-math.inf, "-inf", True),
    "float subclass": (type("F", (float,), {})(0.5), 0.5, False),
    "dataclass": (Settings(), {"lr": 0.1, "layers": [1, 2]}, False),
    "dataclass class": (Settings, f"{__name__}.Settings", True),
    "attrs": (Attrs(), {"lr": 0.5, "unset": "<AttributeError while it was read>"}, True),
    "namespace": (argparse.Namespace(a=1), {"a": 1}, False),
    "simple namespace": (types.SimpleNamespace(a=1), {"a": 1}, False),
    "pydantic": (Dumped(), {"lr": 0.5, "nested": {"a": 1}}, False),
    "to_dict": (WithToDict(), {"hidden_size": 8}, False),
    "config dict": (ConfigDict(), {"lr": 0.5}, False),
    "omegaconf": (Lazy(), {"given": 1, "missing": "<ValueError while it was read>", "last": 1}, True),
    "proxy": (types.MappingProxyType({"a": 1}), {"a": 1}, False),
    "default dict": (collections.defaultdict(list, {"a": 1}), {"a": 1}, False),
    "ordered dict": (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}, False),
    "named tuple": (Pair(1, 2), {"a": 1, "b": 2}, False),
    "enum": (Colour.RED, "Colour.RED", True),
    "int enum": (Level.HIGH, "Level.HIGH", True),
    "set": ({3, 1}, [1, 3], True),
    "frozen set": (frozenset(["b", "a"]), ["a", "b"], True),
    "tuple": ((1, (2, 3)), [1, [2, 3]], False),
    "tuple keys": ({(1, 2): "x"}, {"(1, 2)": "x"}, True),
    "number keys": ({1: "a", "1": "b"}, {"1": "a", "1'": "b"}, True),
    "none key": ({None: 1}, {"None": 1}, True),
    "hostile key": ({HostileKey(): 1}, {"<HostileKey>": 1}, True),
    "key with a line end": ({"a\nb": 1}, {"a\nb": 1}, False),
    "bytes": (b"\x00ab", "b'\\x00ab'", True),
    "bytearray": (bytearray(b"ab"), "bytearray(b'ab')", True),
    "datetime": (datetime.datetime(2024, 1, 2, 3, 4), "2024-01-02 03:04:00", True),
    "timedelta": (datetime.timedelta(seconds=90), "0:01:30", True),
    "decimal": (decimal.Decimal("0.10"), "0.10", True),
    "fraction": (fractions.Fraction(1, 3), "1/3", True),
    "complex": (1 + 2j, "(1+2j)", True),
    "uuid": (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001", True),
    "range": (range(3), "range(0, 3)", True),
    "slice": (slice(1, 2), "slice(1, 2, None)", True),
    "function": (cycle, "cycle", True),
    "lambda": (lambda x: x, "<lambda>", True),
    "builtin": (print, "print", True),
    "class": (Colour, f"{__name__}.Colour", True),
    "type": (int, "int", True),
    "module": (math, "<module math>", True),
    "generator": ((i for i in range(3)), "<generator>", True),
    "iterator": (iter([1]), "<list_iterator>", True),
    "object": (object(), "<object>", True),
    "cycle": (cycle, {"a": 1, "self": "<cycle>"}, True),
    "100 levels": (lambda: nested(100), None, True),
    "10 MB of text": (lambda: "x" * 10_000_000, "x" * 100_000, True),
    "huge int": (10**30, "1" + "0" * 30, True),
    "int of a million bits": (lambda: 1 << 1_000_000, "<int of 1000001 bits>", True),
    "lone surrogate": ("a\ud800b", "a?b", True),
    "surrogate key": ({"\ud800": 1}, {"?": 1}, True),
    "nul character": ("a\0b", "a\0b", False),
    "mapping that breaks": (Breaking(), {"first": 1, "<unreadable>": "RuntimeError while it was read"}, True),
    "endless mapping": (Endless(), None, True),
    "repr raises": (ReprRaises(), "<ReprRaises: RuntimeError while it was read>", True),
    "str is no text": (StrIsNumber(), "<StrIsNumber: TypeError while it was read>", True),
    "answers to all": (AnswersAll(), "AnswersAll", True),
    "lying text": (LyingText("abc"), "abc", False),
    "lying number": (LyingNumber(3), 3, False),
    "class raises": (ClassRaises(), "<ClassRaises: RuntimeError while it was read>", True),
}


def arrays():
    """Return the same table for what numpy and torch make, as far as they are installed."""
    import numpy
    import torch

    return {
        "numpy int": (numpy.int32(4), 4, False),
        "numpy float": (numpy.float64(0.5), 0.5, False),
        "numpy bool": (numpy.bool_(True), True, False),
        "numpy text": (numpy.str_("abc"), "abc", False),
        "numpy nan": (numpy.float32("nan"), "nan", True),
        "numpy complex": (numpy.complex64(1j), "1j", True),
        "numpy array": (numpy.arange(3), [0, 1, 2], True),
        "numpy zero dimensions": (numpy.array(7), 7, False),
        "large numpy array": (numpy.zeros((100, 100)), "<ndarray shape=(100, 100) dtype=float64>", True),
        "numpy dtype": (numpy.dtype("float32"), "float32", True),
        "torch dtype": (torch.float16, "torch.float16", True),
        "torch device": (torch.device("cuda", 1), "cuda:1", True),
        "torch scalar": (torch.tensor(2), 2, False),
        "torch tensor": (torch.ones(2), [1.0, 1.0], True),
        "large torch tensor": (torch.ones(2000), "<Tensor shape=(2000,) dtype=torch.float32>", True),
        "meta tensor": (torch.ones(2, device="meta"), "<Tensor shape=(2,) dtype=torch.float32>", True),
        "parameter": (torch.nn.Parameter(torch.ones(1)), [1.0], True),
    }


CALLED = ("cycle", "100 levels", "10 MB of text", "int of a million bits")


def table():
    """Return name -> (value, stored, lossy) of everything."""
    made = {name: ((value() if name in CALLED else value), *rest) for name, (value, *rest) in ODD.items()}
    return {**made, **arrays()}
