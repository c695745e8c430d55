"""Looking at an entrypoint in a child process: does it import, has it the right parameters, what code is it?

The caller's process (a notebook kernel, perhaps) never runs the module's code.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.contract.identity import CodeIdentity
from watcherml.errors import InvalidEntrypoint, WatcherError
from watcherml.platform import expanded, interpreter, is_folder, new_session_options
from watcherml.sealed.fields import Identity, Later, Name
from watcherml.sealed.record import Record

TIMEOUT_SECONDS = 180.0
_TAIL = 1_500


@dataclass(frozen=True, slots=True, eq=False)
class EntrypointCheck(Record):
    """What the child saw: the parameters, the digests of the project's code that importing it loads, the packages."""

    entrypoint: TrainingEntrypoint
    parameters: tuple[Name, ...]
    code: CodeIdentity
    environment_fingerprint: Annotated[Identity | None, Later()] = None
    uses_torch: Annotated[bool | None, Later()] = None


def resolved_root(project_root: str | os.PathLike[str]) -> Path:
    """Return the project root as an absolute path; ``InvalidEntrypoint`` where it is relative to a deleted folder."""
    try:
        return expanded(project_root).resolve()
    except FileNotFoundError:
        raise InvalidEntrypoint(
            "project_root",
            expected="an absolute path, or a working directory that is there",
            got=f"{str(project_root)[:300]!r} in a working directory that was deleted",
        ) from None


def check_entrypoint(
    entrypoint: TrainingEntrypoint,
    project_root: str | os.PathLike[str] = ".",
    *,
    require_max_steps: bool = True,
    python: str | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> EntrypointCheck:
    """Import the entrypoint in a fresh process and return what was found.

    Raises ``InvalidEntrypoint`` with the child's reason (what importing raised, and at which line), or if it takes
    longer than ``timeout_seconds``.
    """
    root = resolved_root(project_root)
    if not is_folder(root):
        raise InvalidEntrypoint(
            "project_root", expected="an existing folder that can be entered", got=str(project_root)[:300]
        )
    with tempfile.TemporaryDirectory(prefix="watcherml-check-", ignore_cleanup_errors=True) as folder:
        out = Path(folder) / "found.json"
        order = {"target": entrypoint.target, "working_directory": entrypoint.working_directory,
                 "project_root": str(root), "require_max_steps": require_max_steps, "out": str(out)}  # fmt: skip
        done = _run_child(order, folder, python, timeout_seconds)
        found = _read(out)
        if found is None:
            raise _died(entrypoint, done, python)
    if "error" in found:
        raise InvalidEntrypoint(found["error"], expected=found["expected"], got=found["got"], remedy=found["remedy"])
    return EntrypointCheck(entrypoint, tuple(found["parameters"]), CodeIdentity(found["files"]), found["packages"],
                           found["torch"])  # fmt: skip


def _died(
    entrypoint: TrainingEntrypoint, done: subprocess.CompletedProcess[bytes], python: str | None
) -> InvalidEntrypoint:
    """Return the refusal for a child that ended without an answer, with the end of what it said."""
    said = done.stderr.decode("utf-8", "replace")[-_TAIL:].strip().splitlines()
    return InvalidEntrypoint(
        "entrypoint",
        expected=f"{entrypoint.target} to import in a fresh process",
        got=f"exit code {done.returncode}" + (f": {said[-1].strip()}" if said else ""),
        remedy=f"See what `{python or sys.executable} -c 'import watcherml, {entrypoint.module}'` says: neither of the "
        "two may end the process.",
    )


def _run_child(
    order: dict[str, Any], folder: str, python: str | None, timeout_seconds: float
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            [interpreter(python), "-m", "watcherml.trials.check_entrypoint", json.dumps(order)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=timeout_seconds,
            check=False,
            env=child_environment(),
            **new_session_options(),
        )
    except subprocess.TimeoutExpired:
        raise InvalidEntrypoint(
            "entrypoint",
            expected=f"a module that imports within {timeout_seconds:g} s",
            got="one that was still running",
            remedy="Keep training out of the module's top level.",
        ) from None
    except OSError as error:
        raise InvalidEntrypoint(
            "python_executable",
            expected="an interpreter that can be started",
            got=str(error)[:300],
            remedy="Name one that exists (--python-executable PATH, python= in Python), or leave it out for this one.",
        ) from None


def child_environment() -> dict[str, str]:
    """Return this process's environment, with our package importable in the child where it is not installed.

    A child starts in a folder of its own: what ``PYTHONPATH`` names relative to ours is spelled out.
    """
    environment = dict(os.environ)
    environment.pop("PYTHONINSPECT", None)  # the interpreter would go on after its end, and forget its exit code
    if environment.get("PYTHONPATH"):
        entries = environment["PYTHONPATH"].split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(map(_spelled_out, entries))
    own = str(Path(__file__).resolve().parents[2])
    if "site-packages" not in own:
        # Run from a source tree: the child starts in another folder and must still find us.
        present = environment.get("PYTHONPATH", "")
        if own not in present.split(os.pathsep):
            environment["PYTHONPATH"] = own + (os.pathsep + present if present else "")
    return environment


def _spelled_out(entry: str) -> str:
    """Return a relative entry of ``PYTHONPATH`` as this process took it when it started, wherever it is now."""
    if not entry or Path(entry).is_absolute():
        return entry
    plain = os.path.normpath(entry)
    try:
        here = str(Path.cwd() / plain)
    except OSError:  # a working directory that was deleted
        here = entry
    taken = (one for one in sys.path if Path(one).is_absolute() and one.endswith(os.sep + plain))
    # A script's own folder, which comes first there, may end in the same words.
    return here if here in sys.path else next(taken, here)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found


def _child(order: dict[str, Any]) -> dict[str, Any]:
    from watcherml.recorder import environment
    from watcherml.trials import code, loading
    from watcherml.trials.cannot_import import cannot_import

    root = Path(order["project_root"])
    try:
        loading.arrange(root, order["working_directory"])
        entrypoint = TrainingEntrypoint(order["target"], order["working_directory"])
        try:
            function = loading.load(entrypoint)
        except WatcherError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the module's own, told to whoever has to mend it
            raise cannot_import(entrypoint.module, error, root) from None
        parameters = loading.check_signature(function, order["require_max_steps"])
        files = code.code_files(root)
        if not files:
            raise InvalidEntrypoint(
                "project_root",
                expected=f"the folder that holds {entrypoint.module}",
                got="a folder without it",
                remedy="The entrypoint's file has to lie under project_root, so that its code can be sealed.",
            )
    except WatcherError as error:
        return {"error": error.message, "expected": error.expected, "got": error.got, "remedy": error.remedy}
    return {"parameters": list(parameters), "files": files, "packages": environment.collect()["fingerprint"],
            "torch": "torch" in sys.modules or any(_names_torch(root / name) for name in files)}  # fmt: skip


def _names_torch(path: Path) -> bool:
    """Tell whether a file imports torch somewhere: training functions often do so in their own body."""
    return re.search(rb"^\s*(import|from)\s+torch\b", path.read_bytes(), re.MULTILINE) is not None


if __name__ == "__main__":
    _order = json.loads(sys.argv[1])
    _found = _child(_order)
    Path(_order["out"]).write_text(json.dumps(_found), "utf-8")
