"""Measuring the code that a process loads: what of it is the project's, and with which content it ran."""

from __future__ import annotations

import contextlib
import csv
import functools
import hashlib
import importlib.machinery
import io
import os
import sys
import sysconfig
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import watcherml
from watcherml.contract.identity import MADE, MODULE, OUTSIDE

INSTALLED = ("site-packages", "dist-packages")
_SUFFIXES = tuple(importlib.machinery.all_suffixes())
_CACHE = "__pycache__"
_LIBRARY = tuple({Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")})
# How many files outside the project a report names.
_MOST_OUTSIDE = 1_000
# The clock of a file system and that of the process may differ by a tick.
_TICK_SECONDS = 2.0
# Linux dates a file by the last tick of its kernel: one that is written now may be dated up to 10 ms before now.
_COARSE_SECONDS = 0.02
# What reads a file of code, whoever asks for it: also one that no finder was asked about.
_LOADERS = (
    (importlib.machinery.SourceFileLoader, "get_data"),
    (importlib.machinery.SourcelessFileLoader, "get_data"),
    (importlib.machinery.ExtensionFileLoader, "create_module"),
    (importlib.machinery.ExtensionFileLoader, "exec_module"),  # only now it stands among the modules
)


@dataclass
class Began:
    """What a trial is measured against; times are seconds since 1970.

    ``trial``: when it began; None where only the project's own files are asked for. ``call``: when the entrypoint was
    called. ``folders``: what of ``sys.path`` the fingerprint of the packages covers, the present one until it is taken.
    """

    trial: float | None = None
    call: float | None = None
    folders: tuple[str, ...] | None = None

    def calls(self) -> None:
        """Note that the entrypoint's module is imported, the packages are measured, and its function is called now."""
        self.call, self.folders = time.time(), tuple(sys.path)

    def made(self, path: Path, inside: bool) -> bool:
        """Tell whether a file was made since: in the project since the call, elsewhere since the trial began."""
        began = self.call if inside else self.trial
        if began is None:
            return False
        found, since = path.stat(), began - _COARSE_SECONDS
        # A time that lies ahead, or was set by hand, is no sign: only a file that was really written now has both.
        # (On Windows the second one is that of the file's creation.)
        written = os.name == "nt" or found.st_ctime > since
        return written and since < found.st_mtime <= time.time() + _TICK_SECONDS


def code_files(project_root: Path, began: Began | None = None) -> dict[str, str]:
    """Return the digests of all loaded source files of the project, by name: the path relative to its root.

    The project's are the files under its root, links into it included. With ``began.trial`` so are those elsewhere that
    no package brought: an editable install, a folder of ``PYTHONPATH``. Of what was made since, the name says so, as in
    ``CodeIdentity``. Installed packages, Python's own library and this package are never the project's code.
    """
    root = project_root.resolve()
    found: dict[str, str] = {}
    for module in list(sys.modules.values()):
        file = _file_of(module)
        measured = _digest_of(file, root, began) if _is_code(file) else None
        if measured is not None:
            found[measured[0]] = measured[1]
    return _bounded(found)


def together(*found: Mapping[str, str]) -> dict[str, str]:
    """Return several measurements as one; of a file that stands in two of them the first counts."""
    files: dict[str, str] = {}
    known: set[str] = set()
    for one in map(dict, found):  # copied at once: a thread of training may be importing still
        new = {name: digest for name, digest in one.items() if _bare(name) not in known}
        files.update(new)
        known.update(map(_bare, new))
    return _bounded(files)


def _bare(name: str) -> str:
    return name.removeprefix(MADE)


def _is_outside(name: str) -> bool:
    return _bare(name).startswith((OUTSIDE, MODULE))


def _bounded(found: dict[str, str]) -> dict[str, str]:
    """Return the files in order; of those outside the project so many that a report can hold them all."""
    outside = sorted(name for name in found if _is_outside(name))
    return {name: found[name] for name in sorted(found.keys() - set(outside[_MOST_OUTSIDE:]))}


def _file_of(module: Any) -> Any:
    """Return a module's file without running code of it: to look at a lazy module would load it, or raise."""
    try:
        return object.__getattribute__(module, "__dict__").get("__file__")
    except Exception:  # noqa: BLE001 - anything may stand in sys.modules
        return None


def watch_imports(project_root: Path, began: Began | None = None) -> dict[str, str]:
    """Return a dict that fills with the digest of each file of the project at the moment it is imported.

    A module that training imports late may be edited before the trial ends; what ran is what was there then. A script
    that ``runpy`` runs and a file that is loaded by its path are in no list of modules, and count too.
    """
    finder = _Digester(project_root.resolve(), began)
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
            finder.note(this.path, _imported_as(this))
        return own(this, *arguments)

    setattr(loader, method, telling)


def _imported_as(loader: Any) -> str | None:
    """Return the name under which other code will find what a loader loads now; None of a file run by its path."""
    module = sys.modules.get(loader.name)
    spec = None if module is None else object.__getattribute__(module, "__dict__").get("__spec__")
    return loader.name if spec is not None and spec.loader is loader else None


class _Digester:
    """A finder that finds nothing: it looks at what the others are about to load."""

    def __init__(self, root: Path, began: Began | None) -> None:
        self.files: dict[str, str] = {}
        self._root, self._began = root, began

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Note the file of a module that is about to be imported, if it is the project's."""
        try:
            spec = importlib.machinery.PathFinder.find_spec(name, path, target)
            if spec is not None and _is_code(spec.origin):
                self.note(spec.origin, name)
        except Exception:  # noqa: BLE001 - the import itself says what is wrong
            return

    def note(self, file: Any, module: str | None = None) -> None:
        """Note a file that is about to be run, if it is the project's, and what module it is.

        What is imported before the call from under the root is sealed by the place of its file, and needs no name.
        """
        measured = _digest_of(file, self._root, self._began)
        if measured is None:
            return
        name, digest = measured
        outside = _is_outside(name)
        if outside and len(self.files) >= _MOST_OUTSIDE:
            return
        if not {name, _bare(name), MADE + name} & self.files.keys():
            self.files[name] = digest
        late = self._began is not None and self._began.call is not None
        if module is not None and (outside or late):
            self.files.setdefault(MODULE + module, digest)


def _is_code(file: Any) -> bool:
    """Tell whether a module's file is code by its name: a notebook that saves itself is none."""
    return isinstance(file, str) and file.endswith(_SUFFIXES)


def _digest_of(file: Any, root: Path, began: Began | None = None) -> tuple[str, str] | None:
    """Return a file's name and its digest, None for what is not the project's.

    A compiled extension and bytecode without its source are code like any other; Python's own cache is not. Of a
    module in an archive the archive is measured. A link elsewhere keeps its name: what it leads to may change.
    """
    if not isinstance(file, str):
        return None
    began = began or Began()
    there = Path(os.path.abspath(file))  # noqa: PTH100 - a link keeps its place in the project
    if _CACHE in there.parts or _is_installed(there, root, began.folders):
        return None  # most of what is imported, without asking the disk
    there = next((one for one in (there, *there.parents) if one.exists()), there)
    path, own = there.resolve(), Path(watcherml.__file__).resolve().parent
    if path.is_relative_to(own) or _is_installed(path, root, began.folders):
        return None
    inside = next((one for one in (path, there) if one.is_relative_to(root)), None)
    try:
        if inside is None and (began.trial is None or _is_brought(there, began.folders)):
            return None
        name = os.path.relpath(there, root) if inside is None else str(inside.relative_to(root))
        name = Path(name).as_posix().encode("utf-8", "backslashreplace").decode()
        name = MADE + name if began.made(path, inside is not None) else name
        return name, _sha256(path, whole=str(there) == os.path.abspath(file))  # noqa: PTH100 - as above
    except (OSError, ValueError):
        return None  # deleted since it was imported: it is missing from the list, and so does not match


def _sha256(path: Path, whole: bool) -> str:
    """Return the digest of a file; of an archive, which is asked for once a module, only where it has changed."""
    if whole:
        return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    found = path.stat()
    return _sha256_of_archive(path, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


@functools.lru_cache(maxsize=64)
def _sha256_of_archive(path: Path, *_state: int) -> str:
    return _sha256(path, whole=True)


def _is_installed(path: Path, root: Path, folders: Collection[str] | None) -> bool:
    """Tell whether a file is an installed package's or Python's own.

    A project may lie in a folder of packages itself. Packages in a folder that came to ``sys.path`` after the
    fingerprint of the packages was taken are not in it, so they count as the project's.
    """
    if any(path.is_relative_to(one) for one in _LIBRARY) and not any(part in INSTALLED for part in path.parts):
        return True
    if path.is_relative_to(root):
        return any(part in INSTALLED for part in path.relative_to(root).parts)
    if not any(part in INSTALLED for part in path.parts):
        return False
    return folders is None or any(path.is_relative_to(one) for one in _spellings(tuple(folders)))


@functools.lru_cache(maxsize=4)
def _spellings(folders: tuple[str, ...]) -> frozenset[Path]:
    """Return the folders as they are written and as they are without links."""
    named = [Path(one) for one in folders if one]
    return frozenset([*named, *(one.resolve() for one in named)])


def _is_brought(path: Path, folders: Collection[str] | None) -> bool:
    """Tell whether a package brought a file into a folder of another name (``pip install --target``)."""
    named = (Path(entry) for entry in (sys.path if folders is None else folders) if entry)
    for folder in named:
        if path.is_relative_to(folder):
            brought = _brought_by_packages(folder)
            if brought is None or path.relative_to(folder).as_posix() in brought:
                return True
    return False


@functools.lru_cache(maxsize=1_024)
def _brought_by_packages(folder: Path) -> frozenset[str] | None:
    """Return what the packages of a folder list as theirs; None, which is all of it, where one has no such list."""
    found: set[str] = set()
    for one in folder.glob("*.dist-info"):
        try:
            with (one / "RECORD").open(encoding="utf-8", newline="") as record:
                found.update(line[0] for line in csv.reader(record) if line)
        except (OSError, ValueError, csv.Error):
            return None
    return frozenset(found)
