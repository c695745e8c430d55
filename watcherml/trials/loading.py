"""Importing an entrypoint in a child process, and measuring the code that came with it."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.machinery
import inspect
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import watcherml
from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.errors import InvalidEntrypoint
from watcherml.trials.cannot_import import where_instead

_INSTALLED = ("site-packages", "dist-packages")
_SUFFIXES = tuple(importlib.machinery.all_suffixes())
_CACHE = "__pycache__"
_WRAP = "Write a function of the module around it: def train(config, max_steps=None): ... return metrics."


def arrange(project_root: Path, working_directory: str) -> None:
    """Make the project importable behind the standard library, and enter the working directory.

    A file ``random.py`` in a project must not replace Python's own module, so the project's folders go before
    the installed packages and after the standard library.
    """
    work = (project_root / working_directory).resolve()
    if not work.is_dir():
        raise InvalidEntrypoint("working_directory", expected="an existing folder", got=str(working_directory)[:300])
    folders = list(dict.fromkeys([str(work), str(project_root.resolve())]))
    here = str(Path.cwd())
    kept = [entry for entry in sys.path if entry not in ("", here, *folders)]
    position = next((index for index, entry in enumerate(kept) if Path(entry).name in _INSTALLED), len(kept))
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


def code_files(project_root: Path) -> dict[str, str]:
    """Return the digests of all loaded source files under the project root, by relative path.

    Installed packages and this package itself are not the project's code, even if they lie under its root.
    """
    root = project_root.resolve()
    found: dict[str, str] = {}
    for module in list(sys.modules.values()):
        measured = _digest_of(getattr(module, "__file__", None), root)
        if measured is not None:
            found[measured[0]] = measured[1]
    return dict(sorted(found.items()))


def watch_imports(project_root: Path) -> dict[str, str]:
    """Return a dict that fills with the digest of each project file at the moment it is imported.

    A module that training imports late may be edited before the trial ends; what ran is what was there then. A script
    that ``runpy`` runs is no module, and counts too.
    """
    finder = _Digester(project_root.resolve())
    sys.meta_path.insert(0, finder)
    open_code = io.open_code

    def opened(path: str) -> Any:
        with contextlib.suppress(Exception):  # whoever opens it meets what is wrong
            finder.note(str(Path(path).absolute()))
        return open_code(path)

    io.open_code = opened
    return finder.files


class _Digester:
    """A finder that finds nothing: it looks at what the others are about to load."""

    def __init__(self, root: Path) -> None:
        self.files: dict[str, str] = {}
        self._root = root

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Note the file of a module that is about to be imported, if it is the project's."""
        try:
            spec = importlib.machinery.PathFinder.find_spec(name, path, target)
            self.note(None if spec is None else spec.origin)
        except Exception:  # noqa: BLE001 - the import itself says what is wrong
            return

    def note(self, file: str | None) -> None:
        """Note a file that is about to be run, if it is the project's."""
        measured = _digest_of(file, self._root)
        if measured is not None:
            self.files.setdefault(*measured)


def _digest_of(file: Any, root: Path) -> tuple[str, str] | None:
    """Return a module file's path relative to the root and its digest, None for what is not the project's.

    A compiled extension and bytecode without its source are code like any other; Python's own cache is not.
    """
    if not isinstance(file, str) or not file.endswith(_SUFFIXES) or _CACHE in Path(file).parts:
        return None
    path, own = Path(file).resolve(), Path(watcherml.__file__).resolve().parent
    if not path.is_relative_to(root) or path.is_relative_to(own) or any(part in _INSTALLED for part in path.parts):
        return None
    try:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None  # deleted since it was imported: it is missing from the list, and so does not match
    return path.relative_to(root).as_posix(), f"sha256:{content}"


def _kind(value: Any) -> str:
    if inspect.isclass(value):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}" if callable(value) else f"a value of type {type(value).__name__}"


def _refuse(expected: str, got: str, remedy: str = "") -> None:
    raise InvalidEntrypoint("entrypoint", expected=expected, got=got, remedy=remedy)
