"""Importing an entrypoint in a child process, and measuring the code that came with it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.machinery
import inspect
import io
import os
import sys
import sysconfig
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
_LIBRARY = tuple({Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")})
# How the name of a file outside the project begins, and how many of them a report names.
_OUTSIDE, _MOST_OUTSIDE = "../", 1_000
# What reads a file of code, whoever asks for it: also one that no finder was asked about.
_LOADERS = (
    (importlib.machinery.SourceFileLoader, "get_data"),
    (importlib.machinery.SourcelessFileLoader, "get_data"),
    (importlib.machinery.ExtensionFileLoader, "create_module"),
)
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


def code_files(project_root: Path, since: float | None = None) -> dict[str, str]:
    """Return the digests of all loaded source files of the project, by path relative to its root.

    The project's are the files under its root, links into it included. With ``since`` (seconds since 1970) so are those
    elsewhere that no package brought: an editable install, a folder of ``PYTHONPATH``. What is newer than that was
    made by the trial itself. Installed packages, Python's own library and this package are never the project's code.
    """
    root = project_root.resolve()
    found: dict[str, str] = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        measured = _digest_of(file, root, since) if _is_code(file) else None
        if measured is not None:
            found[measured[0]] = measured[1]
    return _bounded(found)


def _bounded(found: dict[str, str]) -> dict[str, str]:
    """Return the files in order; of those outside the project so many that a report can hold them all."""
    outside = sorted(name for name in found if name.startswith(_OUTSIDE))
    return {name: found[name] for name in sorted(found.keys() - set(outside[_MOST_OUTSIDE:]))}


def watch_imports(project_root: Path, since: float | None = None) -> dict[str, str]:
    """Return a dict that fills with the digest of each file of the project at the moment it is imported.

    A module that training imports late may be edited before the trial ends; what ran is what was there then. A script
    that ``runpy`` runs and a file that is loaded by its path are in no list of modules, and count too. ``since`` is
    that of ``code_files``.
    """
    finder = _Digester(project_root.resolve(), since)
    sys.meta_path.insert(0, finder)
    open_code = io.open_code

    def opened(path: str) -> Any:
        with contextlib.suppress(Exception):  # whoever opens it meets what is wrong
            file = str(Path(path).absolute())
            if _is_code(file):
                finder.note(file)
        return open_code(path)

    io.open_code = opened
    for loader, method in _LOADERS:
        _tell(loader, method, finder)
    return finder.files


def _tell(loader: Any, method: str, finder: _Digester) -> None:
    """Have the finder told of each file that a class of loaders is about to run, whatever its name ends in."""
    own = getattr(loader, method)

    @functools.wraps(own)
    def telling(this: Any, *arguments: Any) -> Any:
        with contextlib.suppress(Exception):  # as above
            finder.note(this.path)
        return own(this, *arguments)

    setattr(loader, method, telling)


class _Digester:
    """A finder that finds nothing: it looks at what the others are about to load."""

    def __init__(self, root: Path, since: float | None) -> None:
        self.files: dict[str, str] = {}
        self._root, self._since = root, since

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Note the file of a module that is about to be imported, if it is the project's."""
        try:
            spec = importlib.machinery.PathFinder.find_spec(name, path, target)
            if spec is not None and _is_code(spec.origin):
                self.note(spec.origin)
        except Exception:  # noqa: BLE001 - the import itself says what is wrong
            return

    def note(self, file: Any) -> None:
        """Note a file that is about to be run, if it is the project's."""
        measured = _digest_of(file, self._root, self._since)
        if measured is not None and (not measured[0].startswith(_OUTSIDE) or len(self.files) < _MOST_OUTSIDE):
            self.files.setdefault(*measured)


def _is_code(file: Any) -> bool:
    """Tell whether a module's file is code by its name: a notebook that saves itself is none."""
    return isinstance(file, str) and file.endswith(_SUFFIXES)


def _digest_of(file: Any, root: Path, since: float | None = None) -> tuple[str, str] | None:
    """Return a file's path relative to the root and its digest, None for what is not the project's.

    A compiled extension and bytecode without its source are code like any other; Python's own cache is not. Of a
    module in an archive the archive is measured.
    """
    if not isinstance(file, str):
        return None
    there = Path(os.path.abspath(file))  # noqa: PTH100 - a link keeps its place in the project
    if _CACHE in there.parts or _is_installed(there):
        return None  # most of what is imported, without asking the disk
    there = next((one for one in (there, *there.parents) if one.exists()), there)
    path, own = there.resolve(), Path(watcherml.__file__).resolve().parent
    if path.is_relative_to(own) or _is_installed(path):
        return None
    inside = next((one for one in (path, there) if one.is_relative_to(root)), None)
    try:
        if inside is None and (since is None or path.stat().st_mtime > since or _is_brought(there)):
            return None
        name = os.path.relpath(path, root) if inside is None else str(inside.relative_to(root))
        return Path(name).as_posix(), f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    except (OSError, ValueError):
        return None  # deleted since it was imported: it is missing from the list, and so does not match


def _is_installed(path: Path) -> bool:
    return any(part in _INSTALLED for part in path.parts) or any(path.is_relative_to(one) for one in _LIBRARY)


def _is_brought(path: Path) -> bool:
    """Tell whether a folder of modules holds installed packages under another name (``pip install --target``)."""
    folders = (Path(entry) for entry in sys.path if entry)
    return any(_holds_packages(one) for one in folders if path.is_relative_to(one))


@functools.lru_cache(maxsize=1_024)
def _holds_packages(folder: Path) -> bool:
    return next(folder.glob("*.dist-info"), None) is not None


def _kind(value: Any) -> str:
    if inspect.isclass(value):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}" if callable(value) else f"a value of type {type(value).__name__}"


def _refuse(expected: str, got: str, remedy: str = "") -> None:
    raise InvalidEntrypoint("entrypoint", expected=expected, got=got, remedy=remedy)
