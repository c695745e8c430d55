"""Doing something to a module as soon as it is there, however late somebody imports it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any


def when_imported(name: str, call: Callable[[Any], None]) -> Callable[[], None]:
    """Call with the module now if it is loaded, else once its code has run; returns the call that stops the waiting.

    A module whose top package is loaded counts as loaded: packages such as torch take submodules out of their own
    namespace, so it is asked for by name.
    """
    if name in sys.modules or name.partition(".")[0] in sys.modules:
        call(importlib.import_module(name))
        return lambda: None
    finder = _Finder(name, call)
    sys.meta_path.insert(0, finder)
    return lambda: sys.meta_path.remove(finder) if finder in sys.meta_path else None


class _Finder:
    """An import hook for one module, once."""

    def __init__(self, name: str, call: Callable[[Any], None]) -> None:
        self._name = name
        self._call = call

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the module's own spec with a loader that makes the call; None for every other module."""
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        run, call = spec.loader.exec_module, self._call

        def exec_module(module: Any) -> None:
            run(module)
            call(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
