"""Importing an entrypoint in a child process."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.errors import InvalidEntrypoint
from watcherml.platform import is_folder
from watcherml.trials.cannot_import import where_instead
from watcherml.trials.code import INSTALLED

_WRAP = "Write a function of the module around it: def train(config, max_steps=None): ... return metrics."


def arrange(project_root: Path, working_directory: str) -> None:
    """Make the project importable behind the standard library, and enter the working directory.

    A file ``random.py`` in a project must not replace Python's own module, so the project's folders go before
    the installed packages and after the standard library.
    """
    work = (project_root / working_directory).resolve()
    if not is_folder(work):
        raise InvalidEntrypoint(
            "working_directory", expected="an existing folder that can be entered", got=str(working_directory)[:300]
        )
    folders = list(dict.fromkeys([str(work), str(project_root.resolve())]))
    here = str(Path.cwd())
    kept = [entry for entry in sys.path if entry not in ("", here, *folders)]
    position = next((index for index, entry in enumerate(kept) if Path(entry).name in INSTALLED), len(kept))
    sys.path[:] = kept[:position] + folders + kept[position:]
    os.chdir(work)


def load(entrypoint: TrainingEntrypoint) -> Callable[..., Any]:
    """Import the module and return the function.

    Raises ``InvalidEntrypoint`` if the module has no such top-level function or it cannot be called; errors of
    the module's own code come through unchanged.
    """
    try:
        module = importlib.import_module(entrypoint.module)
    except ModuleNotFoundError as error:
        if error.name is None or not (entrypoint.module + ".").startswith(error.name + "."):
            raise
        raise InvalidEntrypoint(
            "entrypoint",
            expected=f"an importable module {entrypoint.module}",
            got="none of that name",
            remedy=f"Looked in {Path.cwd()} and the project root; "
            + (where_instead(entrypoint.module, Path.cwd()) or "set project_root or working_directory."),
        ) from None
    function = getattr(module, entrypoint.function, None)
    if function is None:
        names = [name for name, value in vars(module).items() if inspect.isfunction(value)]
        remedy = f"Functions there: {', '.join(sorted(names)[:12]) or 'none'}."
        raise InvalidEntrypoint(
            "entrypoint", expected=f"a function {entrypoint.function}", got="no such name", remedy=remedy
        )
    return check_callable(function)


def check_callable(function: Any) -> Callable[..., Any]:
    """Return a top-level plain function; ``InvalidEntrypoint`` for anything that a fresh process cannot repeat."""
    if not inspect.isfunction(function):
        _refuse("a top-level function", _kind(function), _WRAP)
    if function.__name__ == "<lambda>" or "<locals>" in function.__qualname__:
        remedy = _WRAP if function.__name__ == "<lambda>" else f"{_WRAP} A decorator keeps it with functools.wraps."
        _refuse("a named top-level function", function.__qualname__, remedy)
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        _refuse("a function that returns its metrics", "an async or generator function", _WRAP)
    return function  # type: ignore[no-any-return]


def check_signature(function: Callable[..., Any], require_max_steps: bool) -> tuple[str, ...]:
    """Return the parameter names; ``InvalidEntrypoint`` unless it can be called with ``config`` and ``max_steps``."""
    signature = inspect.signature(function)
    parameters = signature.parameters
    names = tuple(parameters)
    wanted = ("config", "max_steps") if require_max_steps else ("config",)
    keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for name in wanted:
        if name not in parameters or parameters[name].kind not in keyword:
            purpose = " A probe is bounded by max_steps." if name == "max_steps" else ""
            _refuse(f"a parameter named {name}", str(signature), f"def train(config, max_steps=None): ...{purpose}")
    for name, parameter in parameters.items():
        variable = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        if name not in ("config", "max_steps") and not variable and parameter.default is inspect.Parameter.empty:
            _refuse("no further required parameter", f"the required parameter {name}", "Give it a default value.")
    return names


def _kind(value: Any) -> str:
    if inspect.isclass(value):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}" if callable(value) else f"a value of type {type(value).__name__}"


def _refuse(expected: str, got: str, remedy: str = "") -> None:
    raise InvalidEntrypoint("entrypoint", expected=expected, got=got, remedy=remedy)
