"""Which names of a namespace hold tensors, arrays and modules, and how many bytes each keeps alive.

Frameworks are recognised only if they are loaded already; nothing is imported, called on a device, or deleted.
"""

from __future__ import annotations

import itertools
import sys
import types
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from watcherml.forensics.matching import clean
from watcherml.sealed.fields import ByteCount, Line, Name
from watcherml.sealed.record import Record

MAX_DEPTH = 4  # containers within containers
MAX_ITEMS = 20_000  # values looked at in one namespace

_CLOSED = (type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType, BaseException)
_FOREIGN = frozenset({"IPython", "ipykernel", "traitlets"})  # the shell's own objects lead back to every global

Piece = tuple[tuple[str, int], int]  # the identity of a block of memory, and its bytes


@dataclass(frozen=True, slots=True, eq=False)
class Holder(Record):
    """A name, the bytes that only go when it goes, and what it is in words.

    Bytes that several names share are counted once, for the first of them in the namespace.
    """

    KIND: ClassVar[str] = "watcherml.holder"

    name: Name
    bytes: ByteCount
    what: Line


def holders(namespace: Mapping[str, Any], limit: int = 5) -> tuple[Holder, ...]:
    """Return the names that hold most memory, biggest first, at most ``limit``.

    Tensors count with their whole storage (a view keeps all of it), modules with parameters, gradients and buffers,
    optimizers with their state; lists, tuples, sets, dicts and plain objects with what is inside them.
    """
    found = sorted((holder for holder, _ in holders_of(namespace)), key=lambda holder: -holder.bytes)
    return tuple(found[: max(0, limit)])


def holders_of(namespace: Mapping[str, Any]) -> list[tuple[Holder, Any]]:
    """Return every name that holds memory of its own, with its value, in the order of attribution."""
    walk = _Walk()
    seen: set[tuple[str, int]] = set()
    aliases: dict[int, list[str]] = {}
    found: list[tuple[str, int, str, Any]] = []
    for name, value in sorted(_named(namespace), key=lambda item: _rank(item[0])):
        if id(value) in aliases:
            aliases[id(value)].append(name)
            continue
        pieces = dict(walk.pieces(value))
        own = sum(count for key, count in pieces.items() if key not in seen)
        seen.update(pieces)
        if own:
            aliases[id(value)] = [name]
            found.append((name, own, _describe(value, len(pieces)), value))
    return [
        (Holder(clean(", ".join(aliases[id(value)]), 400), own, clean(what, 400)), value)
        for _, own, what, value in found
    ]


def _named(namespace: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in list(namespace.items()) if isinstance(name, str) and name]


def _rank(name: str) -> int:
    """Put IPython's caches behind the user's names, so that what both hold is counted for the user's."""
    return 2 if name.startswith("_") else 1 if name == "Out" else 0


class _Walk:
    """Looks through values for blocks of memory, within one allowance for a whole namespace."""

    def __init__(self) -> None:
        self.torch: Any = sys.modules.get("torch")
        self.numpy: Any = sys.modules.get("numpy")
        self.allowance = MAX_ITEMS

    def pieces(self, value: Any) -> Iterator[Piece]:
        visited: set[int] = set()
        waiting = [(value, 0)]
        while waiting and self.allowance > 0:
            one, depth = waiting.pop()
            if id(one) in visited:
                continue
            visited.add(id(one))
            self.allowance -= 1
            if self._is(one, "torch", "Tensor"):
                yield from self._tensor(one)
            elif self._is(one, "numpy", "ndarray"):
                yield from self._array(one)
            elif depth < MAX_DEPTH:
                waiting += [(inside, depth + 1) for inside in self._inside(one)]

    def _is(self, value: Any, module: str, *path: str) -> bool:
        # The type is asked, not the value: a proxy answers isinstance() by running code of its own.
        kind: Any = getattr(self, module)
        for name in path:
            kind = getattr(kind, name, None)
        return isinstance(kind, type) and issubclass(type(value), kind)

    def _tensor(self, tensor: Any) -> Iterator[Piece]:
        if type(tensor).__name__ == "FakeTensor" or tensor.device.type == "meta":
            return
        try:
            storage = tensor.untyped_storage()
            yield (str(tensor.device), int(storage._cdata)), int(storage.nbytes())
        except (RuntimeError, AttributeError):  # sparse and wrapped tensors have no storage of their own
            return
        if tensor.is_leaf and tensor.grad is not None:
            yield from self._tensor(tensor.grad)

    def _array(self, array: Any) -> Iterator[Piece]:
        while self._is(array.base, "numpy", "ndarray"):
            array = array.base
        if self._is(array.base, "torch", "Tensor"):
            yield from self._tensor(array.base)
        elif not self._is(array, "numpy", "memmap"):
            yield ("array", id(array)), int(array.nbytes)

    def _inside(self, value: Any) -> list[Any]:
        kind = type(value)
        try:
            if self._is(value, "torch", "nn", "Module"):
                return list(itertools.islice(itertools.chain(value.parameters(), value.buffers()), self.allowance))
            if issubclass(kind, dict):
                return list(itertools.islice(dict.values(value), self.allowance))
            if issubclass(kind, (list, tuple, set, frozenset, deque)):
                return list(itertools.islice(value, self.allowance))
            if issubclass(kind, _CLOSED) or kind.__module__.partition(".")[0] in _FOREIGN:
                return []
            attributes = object.__getattribute__(value, "__dict__")
            return list(itertools.islice(attributes.values(), self.allowance)) if type(attributes) is dict else []
        except (AttributeError, RuntimeError, TypeError):  # no __dict__, or changed by another thread meanwhile
            return []


def _describe(value: Any, pieces: int) -> str:
    walk = _Walk()
    kind = type(value).__name__
    if walk._is(value, "torch", "Tensor"):
        graph = ", with its autograd graph" if value.grad_fn is not None else ""
        return f"{str(value.dtype).removeprefix('torch.')} tensor {tuple(value.shape)} on {value.device}{graph}"
    if walk._is(value, "numpy", "ndarray"):
        return f"{value.dtype} array {value.shape}"
    return f"{kind} with {pieces} tensor{'' if pieces == 1 else 's'} or array{'' if pieces == 1 else 's'}"
