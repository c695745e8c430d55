"""Doing something to a module as soon as it is there, however late somebody imports it."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

_Call = Callable[[Any], None]


def when_imported(name: str, call: _Call) -> Callable[[], None]:
    """Call with the module now if it is loaded, else once its code has run; returns the call that stops the waiting.

    A module whose top package is loaded counts as loaded: packages such as torch take submodules out of their own
    namespace, so it is asked for by name.
    """
    if name in sys.modules or name.partition(".")[0] in sys.modules:
        call(importlib.import_module(name))
        return lambda: None
    return _finder.wait(name, call)


class _Finder:
    """The one import hook of this package; it waits for modules by name, each once.

    It is never taken out of ``sys.meta_path`` again. Another thread that imports something goes through that very list,
    and would miss the finder that moves into the place of one that is removed: its module would not be found.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, list[_Call]] = {}

    def wait(self, name: str, call: _Call) -> Callable[[], None]:
        """Make the call once the module is there; returns the call that stops the waiting."""
        calls = self._waiting.setdefault(name, [])
        calls.append(call)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

        def stop() -> None:
            with contextlib.suppress(ValueError):  # made meanwhile
                calls.remove(call)

        return stop

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the module's own spec with a loader that makes the calls; None for every module not waited for."""
        calls = self._waiting.pop(name, None)
        if not calls:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            for call in tuple(calls):
                call(module)
            calls.clear()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_finder = _Finder()
