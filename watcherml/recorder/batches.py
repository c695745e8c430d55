"""Hearing of every batch that a torch DataLoader, or the simulated device's ``batches``, hands to training.

A DataLoader's batches are heard at the class of its iterators, for as long as somebody listens: no loader, dataset or
module of the user's is touched. An error while a batch is loaded shows one line of this file in its traceback.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from watcherml.recorder.late import when_imported
from watcherml.simulated import active

# Called with what stands for the loader, and the elements of all tensors of the batch.
Listener = Callable[[object, int], None]

_MOST_LOADERS = 256  # told apart
_MOST_VALUES = 256  # looked at in one batch
_listeners: list[Listener] = []
_undo_import: list[Callable[[], None]] = []
_wrapped: list[tuple[Any, Any, Any]] = []  # the class, its own __next__, ours


def listen(listener: Listener) -> Callable[[], None]:
    """Call the listener for each batch from now on, whenever torch is imported; returns the call that undoes it."""
    _listeners.append(listener)
    active.batch_listeners.append(listener)
    if not _wrapped and not _undo_import:
        _undo_import.append(when_imported("torch.utils.data.dataloader", _wrap))

    def undo() -> None:
        for place in (_listeners, active.batch_listeners):
            if listener in place:
                place.remove(listener)
        if not _listeners:
            _unwrap()

    return undo


class Names:
    """Numbers for loaders, without keeping them: an address alone may be that of another one later."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._next = itertools.count(-1, -1)

    def number(self, loader: object) -> int:
        """Return the same number for the same object for as long as it lives."""
        known = self._known.get(id(loader))
        if known is not None and known[0]() is loader:
            return known[1]
        try:
            reference = weakref.ref(loader)
        except TypeError:  # a list or a tuple: its address has to do
            return id(loader)
        if len(self._known) >= _MOST_LOADERS:
            self._known.clear()
        self._known[id(loader)] = reference, next(self._next)
        return self._known[id(loader)][1]


def elements_of(batch: Any) -> int:
    """Return the number of elements of all tensors in a batch of lists, tuples and mappings."""
    total, looked = 0, 0
    waiting = [batch]
    while waiting and looked < _MOST_VALUES:
        value = waiting.pop()
        looked += 1
        if isinstance(value, (list, tuple)):
            waiting.extend(value[:_MOST_VALUES])
        elif isinstance(value, Mapping):
            waiting.extend(value.values())
        else:
            count = getattr(value, "numel", None)
            total += int(count()) if callable(count) else 0
    return total


def _wrap(module: Any) -> None:
    kind = module._BaseDataLoaderIter
    own = kind.__next__

    @functools.wraps(own)
    def __next__(iterator: Any) -> Any:
        batch = own(iterator)
        if active.taking:
            return batch  # the simulated device tells of it once it has it
        try:
            source, count = getattr(iterator, "_dataset", iterator), elements_of(batch)
            for hear in tuple(_listeners):
                hear(source, count)
        except Exception:  # noqa: BLE001, S110 - a batch that cannot be counted is not counted
            pass
        return batch

    kind.__next__ = __next__
    _wrapped.append((kind, own, __next__))


def _unwrap() -> None:
    while _undo_import:
        _undo_import.pop()()
    while _wrapped:
        kind, own, ours = _wrapped.pop()
        if kind.__dict__.get("__next__") is ours:  # somebody else may have wrapped it meanwhile
            kind.__next__ = own
