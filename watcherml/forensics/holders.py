"""Which names of a namespace hold tensors, arrays and modules, and how many bytes each keeps alive.

Frameworks are recognised only if they are loaded already; nothing is imported, called on a device, or deleted. What a
suspended generator, a closure or a kept exception holds is found through the garbage collector: on Python 3.12 and
older, asking a frame for its locals would store one more reference to each of them.
"""

from __future__ import annotations

import contextvars
import functools
import gc
import itertools
import sys
import types
from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from watcherml.forensics.matching import ask, clean
from watcherml.recorder.life import name_of
from watcherml.sealed.fields import ByteCount, Line, Name
from watcherml.sealed.record import Record

MAX_DEPTH = 4  # containers within containers
MAX_ITEMS = 40_000  # values looked at in one namespace; one name gets at most half of what is left of them

BUFFER_BYTES = 2**20  # smaller bytes objects are text and headers, not data
MAX_OUTPUTS = 1_000  # of ``Out``, the last ones
_CLOSED = (type, types.ModuleType, types.BuiltinFunctionType, types.CodeType)
_SUSPENDED = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
_WITHOUT_ATTRIBUTES = (
    *_SUSPENDED, types.FunctionType, types.MethodType, BaseException, functools.partial, types.FrameType,
    types.TracebackType, contextvars.ContextVar,
)  # fmt: skip
_IN_C = frozenset({"functools", "itertools", "_thread"})  # caches, iterators, locals of threads
GRAPH = "autograd graph"  # in the words for a holder; its activations are not among the bytes
_FOREIGN = frozenset({"IPython", "ipykernel", "traitlets", "watcherml"})  # their objects lead back to every global

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


def holders_of(namespace: Mapping[str, Any], beside: Mapping[str, Any] | None = None) -> list[tuple[Holder, Any]]:
    """Return every name that holds memory of its own, with its value, in the order of attribution.

    ``beside`` are values that are held without a name of the namespace, under words that tell by what; one that has a
    name there as well counts for that name alone.
    """
    walk = _Walk(namespace)
    seen: set[tuple[str, int]] = set()
    aliases: dict[int, list[str]] = {}
    found: list[tuple[str, int, str, Any]] = []
    named = [(_rank(name), name, value) for name, value in _named(namespace)]
    named += [(1, name, value) for name, value in (beside or {}).items()]
    for _, name, value in sorted(named, key=lambda item: item[0]):
        if id(value) in aliases:
            if beside is None or name not in beside:
                aliases[id(value)].append(name)
            continue
        walk.graph = False
        pieces = dict(walk.pieces(value))
        own = sum(count for key, count in pieces.items() if key not in seen)
        seen.update(pieces)
        if own:
            aliases[id(value)] = [name]
            found.append((name, own, _describe(value, len(pieces), walk.graph), value))
    return [
        (Holder(clean(", ".join(aliases[id(value)]), 400), own, clean(what, 400)), value)
        for _, own, what, value in found
    ]


def _named(namespace: Mapping[str, Any]) -> list[tuple[str, Any]]:
    outputs = namespace.get("_oh")
    found: list[tuple[str, Any]] = []
    modules: dict[int, list[tuple[str, Any]]] = {}
    for name, value in list(namespace.items()):
        if value is outputs and type(outputs) is dict:
            if name == "_oh":
                kept = list(outputs.items())[-MAX_OUTPUTS:]
                found += [(f"Out[{number}]", one) for number, one in kept if type(number) is int]
        elif isinstance(name, str) and name:
            if _is_a(value, (types.ModuleType,)) and id(value) not in modules and _is_of_the_project(value):
                modules[id(value)] = [(f"{name}.{inside}", one) for inside, one in list(vars(value).items())]
            found.append((name, value))
    return found + [one for inside in modules.values() for one in inside if not one[0].endswith("__")]


def _is_of_the_project(module: types.ModuleType) -> bool:
    """Tell whether a module is the person's own file and not a part of Python or an installed package."""
    attributes = vars(module)
    file, name = attributes.get("__file__"), str(attributes.get("__name__"))
    if type(file) is not str or "site-packages" in file or "dist-packages" in file:
        return False
    return name.partition(".")[0] not in sys.stdlib_module_names | _FOREIGN | {"__main__"}


def _rank(name: str) -> int:
    """Put IPython's caches behind the user's names, so that what both hold is counted for the user's."""
    return 3 if name.startswith("_") else 2 if name.startswith("Out[") else 0


class _Walk:
    """Looks through values for blocks of memory, within one allowance for a whole namespace."""

    def __init__(self, namespace: Mapping[str, Any] | None = None) -> None:
        self.around = id(namespace)  # a name for the namespace itself, globals() for example, holds nothing of its own
        self.torch: Any = sys.modules.get("torch")
        self.numpy: Any = sys.modules.get("numpy")
        self.pandas: Any = sys.modules.get("pandas")
        self.allowance = MAX_ITEMS
        self.graph = False  # whether a tensor keeps an autograd graph, whose memory nothing in Python shows

    def pieces(self, value: Any) -> Iterator[Piece]:
        visited = {self.around}
        waiting = [(value, 0)]
        spared = self.allowance // 2
        while waiting and self.allowance > spared:
            one, depth = waiting.pop()
            if id(one) in visited:
                continue
            visited.add(id(one))
            self.allowance -= 1
            if self._is(one, "torch", "Tensor"):
                yield from self._tensor(one)
            elif self._is(one, "numpy", "ndarray"):
                yield from self._array(one)
            elif _is_a(one, (bytes, bytearray, array)):
                if sys.getsizeof(one) >= BUFFER_BYTES:
                    yield ("buffer", id(one)), sys.getsizeof(one)
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
        self.graph = self.graph or tensor.grad_fn is not None
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
            if self._is(value, "pandas", "DataFrame") or self._is(value, "pandas", "Series"):
                return list(value._mgr.arrays)
            if issubclass(kind, _WITHOUT_ATTRIBUTES):
                return list(itertools.islice(_held(value), self.allowance))
            if issubclass(kind, type) and _is_the_persons(value):
                return list(_attributes_of_class(value).values())
            if issubclass(kind, _CLOSED) or str(ask(kind, "__module__")).partition(".")[0] in _FOREIGN:
                return []
            return list(itertools.islice(_attributes(value), self.allowance))
        except (AttributeError, RuntimeError, TypeError):  # changed by another thread meanwhile
            return []


def _attributes(value: Any) -> Iterator[Any]:
    """Yield what an object holds in attributes; of one without them, or that is C, what the collector sees in it."""
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        attributes = None
    if type(attributes) is dict:
        yield from attributes.values()
    if attributes is None or ask(type(value), "__module__") in _IN_C:
        for one in gc.get_referents(value):
            if not _is_a(one, _CLOSED):
                yield one


def _is_the_persons(kind: type) -> bool:
    return bool(type.__dict__["__module__"].__get__(kind) == "__main__")


def _attributes_of_class(kind: type) -> Mapping[str, Any]:
    # Not through the class itself: its metaclass may answer with code of its own.
    found: Mapping[str, Any] = type.__dict__["__dict__"].__get__(kind)
    return found


def _is_a(value: Any, kinds: tuple[type, ...]) -> bool:
    """Ask the type and not the value: a proxy answers ``isinstance`` by running code of its own."""
    return issubclass(type(value), kinds)


def _held(value: Any) -> Iterator[Any]:
    """Yield what code holds without a name of its own: captured variables, defaults, locals of frames at rest."""
    if _is_a(value, (types.FrameType,)):
        yield from _locals(value)
    elif _is_a(value, (types.TracebackType,)):
        yield from _locals(value.tb_frame)
        yield value.tb_next
    elif _is_a(value, (contextvars.ContextVar,)):
        yield value.get(None)
    elif _is_a(value, (types.MethodType,)):
        yield value.__self__
        yield value.__func__
    elif _is_a(value, (functools.partial,)):
        yield from (value.func, value.args, value.keywords)
    elif _is_a(value, (types.FunctionType,)):
        yield from (value.__defaults__, value.__kwdefaults__, value.__dict__)
        yield from _captured(value)
    elif _is_a(value, (BaseException,)):
        yield from (value.__cause__, value.__context__, value.args, getattr(value, "exceptions", None))
        yield from _attributes(value)
        traceback = value.__traceback__
        while traceback is not None:
            yield from _locals(traceback.tb_frame)
            traceback = traceback.tb_next
    else:
        names = ("gi_frame", "cr_frame", "ag_frame")
        frame = next((getattr(value, name) for name in names if hasattr(value, name)), None)
        yield from _at_rest(gc.get_referents(value), frame)
        if frame is not None:
            yield from _locals(frame)


def _captured(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue


def _locals(frame: types.FrameType) -> Iterator[Any]:
    # A frame that still runs shows nothing here; what it holds is not the person's to let go of.
    yield from _at_rest(gc.get_referents(frame), frame)


def _at_rest(referents: list[Any], frame: types.FrameType | None) -> Iterator[Any]:
    # Its globals are everybody's, and a frame next to it is counted in its own place.
    shared = () if frame is None else (id(frame.f_globals), id(frame.f_builtins))
    for one in referents:
        if _is_a(one, (types.CellType,)):
            try:
                yield one.cell_contents
            except ValueError:
                continue
        elif id(one) not in shared and not _is_a(one, (types.FrameType, types.CodeType)):
            yield one


def _describe(value: Any, pieces: int, graph: bool) -> str:
    walk = _Walk()
    kind = "class" if _is_a(value, (type,)) else name_of(type(value))
    if walk._is(value, "torch", "Tensor"):
        kept = f", with its {GRAPH}" if value.grad_fn is not None else ""
        return f"{str(value.dtype).removeprefix('torch.')} tensor {tuple(value.shape)} on {value.device}{kept}"
    if walk._is(value, "numpy", "ndarray"):
        return f"{value.dtype} array {value.shape}"
    if _is_a(value, (bytes, bytearray, array)):
        return f"{kind} of {len(value)} item{'' if len(value) == 1 else 's'}"
    kept = f", with an {GRAPH}" if graph else ""
    return f"{kind} with {pieces} tensor{'' if pieces == 1 else 's'} or array{'' if pieces == 1 else 's'}{kept}"
