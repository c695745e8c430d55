"""What training may have changed in its own process, put back before the report is made.

Training code may close, replace or patch what it likes. Two things are kept apart here. The process's settings and the
standard library are put back, because changing them is anybody's right and must not spoil a report. This package's own
code is compared, because whoever replaces it wants another report: that breaks the protocol, and the report says so.
"""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import json
import math
import os
import signal
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LIMITS = ("RLIMIT_FSIZE", "RLIMIT_AS", "RLIMIT_DATA", "RLIMIT_NOFILE", "RLIMIT_STACK")
# What the way from a returned value to a file on disk stands on.
_USED = (
    (os, "open close read write replace rename unlink fsync fdopen urandom stat getpid getppid getcwd chdir _exit"),
    (json, "dumps loads"),
    (hashlib, "sha256 new"),
    (math, "isfinite isinf isnan"),
    (time, "monotonic time"),
    (Path, "replace unlink open read_bytes write_bytes resolve"),
)
_OWN = "watcherml"


def keep() -> Callable[[], None]:
    """Note the process's settings and the standard library; returns the call that puts them back."""
    mask = os.umask(0o077)
    os.umask(mask)
    folder, depth, streams = str(Path.cwd()), sys.getrecursionlimit(), (sys.stdin, sys.stdout, sys.stderr)
    filters, limits, blocked = list(warnings.filters), _soft_limits(), _blocked()
    plain = dict(vars(builtins))
    used = [(home, name, getattr(home, name)) for home, names in _USED for name in names.split()]

    def put_back() -> None:
        sys.settrace(None)
        sys.setprofile(None)
        vars(builtins).update(plain)
        for home, name, value in used:
            setattr(home, name, value)
        sys.stdin, sys.stdout, sys.stderr = streams
        warnings.filters = filters
        for restore in (
            lambda: os.umask(mask),
            lambda: os.chdir(folder),
            lambda: sys.setrecursionlimit(depth),
            lambda: _set_soft_limits(limits),
            lambda: _block(blocked),
        ):
            with contextlib.suppress(Exception):  # a folder that is gone, a hard limit that was lowered
                restore()

    return put_back


@dataclass(frozen=True)
class _Part:
    """One function or class: where it is found, and what it does."""

    home: Any
    name: str
    value: Any
    function: Any
    code: Any
    defaults: Any

    @classmethod
    def of(cls, home: Any, name: str, value: Any) -> _Part:
        function = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
        return cls(home, name, value, function, getattr(function, "__code__", None),
                   getattr(function, "__defaults__", None))  # fmt: skip

    def is_as(self, other: _Part | None) -> bool:
        return (
            other is not None
            and self.value is other.value
            and self.code is other.code
            and self.defaults is other.defaults
        )

    def put_back(self) -> None:
        setattr(self.home, self.name, self.value)
        if self.code is not None:
            self.function.__code__, self.function.__defaults__ = self.code, self.defaults


def watch_own_code() -> Callable[[], list[str]]:
    """Note this package's code as it is loaded now; returns the call that puts back, and names, what was replaced."""
    modules = {name: module for name, module in list(sys.modules.items()) if _is_own(name) and _is_whole(module)}
    before = {name: dict(_parts(module)) for name, module in modules.items()}

    def replaced() -> list[str]:
        found: list[str] = []
        for name, module in modules.items():
            if sys.modules.get(name) is not module:
                sys.modules[name] = module
                found.append(name)
            known, now = before[name], dict(_parts(module))
            for path, part in known.items():
                if not part.is_as(now.get(path)):
                    part.put_back()
                    found.append(f"{name}.{path}")
            for path, part in now.items():
                if path not in known and _comes_first(path, known):
                    delattr(part.home, part.name)
                    found.append(f"{name}.{path}")
        return found

    return replaced


def _comes_first(path: str, known: Collection[str]) -> bool:
    """Tell whether a new name is found before what was meant: a method that a class did not have, a builtin's name."""
    home, dot, _ = path.partition(".")
    return home in known if dot else _shadows(path)


def _is_whole(module: types.ModuleType) -> bool:
    # Another thread of ours may be importing it right now.
    return not getattr(getattr(module, "__spec__", None), "_initializing", False)


def _is_own(name: str) -> bool:
    return name == _OWN or name.startswith(_OWN + ".")


def _parts(module: types.ModuleType) -> Iterator[tuple[str, _Part]]:
    """Yield each function of a module and of its own classes by its path, and whatever else has a builtin's name."""
    for name, value in list(vars(module).items()):
        own_class = isinstance(value, type) and _is_own(value.__module__)
        if isinstance(value, types.FunctionType) or own_class or _shadows(name):
            yield name, _Part.of(module, name, value)
        if own_class and value.__module__ == module.__name__:
            for inner, method in list(vars(value).items()):
                # A protocol's __init__ is typing's own, which puts another in its place.
                if _is_code(method) and getattr(method, "__module__", None) != "typing":
                    yield f"{name}.{inner}", _Part.of(value, inner, method)


def _is_code(value: Any) -> bool:
    return callable(value) or isinstance(value, (property, classmethod, staticmethod))


def _shadows(name: str) -> bool:
    return name in vars(builtins) and not name.startswith("__")


def _soft_limits() -> dict[int, tuple[int, int]]:
    if os.name == "nt":
        return {}
    import resource

    known = [getattr(resource, name) for name in _LIMITS if hasattr(resource, name)]
    return {number: resource.getrlimit(number) for number in known}


def _set_soft_limits(limits: dict[int, tuple[int, int]]) -> None:
    for number, (soft, _) in limits.items():
        import resource

        hard = resource.getrlimit(number)[1]
        with contextlib.suppress(OSError, ValueError):
            lower = soft == resource.RLIM_INFINITY or (hard != resource.RLIM_INFINITY and soft > hard)
            resource.setrlimit(number, (hard if lower and hard != resource.RLIM_INFINITY else soft, hard))


def _blocked() -> set[int] | None:
    if not hasattr(signal, "pthread_sigmask") or threading.current_thread() is not threading.main_thread():
        return None
    return {int(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, ())}


def _block(numbers: set[int] | None) -> None:
    if numbers is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, numbers)
