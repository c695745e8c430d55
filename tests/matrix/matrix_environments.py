"""Makes the environments of the kernel matrix: four Pythons with four generations of IPython and ipykernel, no torch.

As a script it builds what is missing: ``python tests/matrix/matrix_environments.py [FOLDER]``. The folder is the
argument, else WATCHERML_MATRIX, else ``.matrix`` beside ``tests``. A Python is looked for on PATH and where pyenv keeps
its versions; one that is not on the machine is named and left out, and its tests are skipped with that reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = ("psutil>=5.9",)
CURRENT = ("ipython>=7.34", "ipykernel>=6.17", "ipywidgets>=7.7.1,<9")
# What hosted notebooks pin, of what we use or stand on.
HOSTED = (
    "ipython==7.34.0", "ipykernel==6.17.1", "ipywidgets==7.7.1", "jupyter-client==7.4.9", "traitlets==5.7.1",
    "psutil==5.9.5",
)  # fmt: skip


@dataclass(frozen=True)
class Environment:
    """A Python version, the packages it gets, and the major versions of IPython and ipykernel that these resolve to."""

    name: str
    python: str
    packages: tuple[str, ...]
    ipython: int
    ipykernel: int


ENVIRONMENTS = (
    Environment("python3.10", "3.10", CURRENT, 8, 7),
    Environment("python3.11", "3.11", CURRENT, 9, 7),
    Environment("python3.12-hosted", "3.12", HOSTED, 7, 6),
    Environment("python3.13", "3.13", CURRENT, 9, 7),
)


def stands_for(one: Environment) -> bool:
    """Tell whether the running Python with its packages is the environment, so that it needs no second copy."""
    return one.packages is CURRENT and one.python == f"{sys.version_info[0]}.{sys.version_info[1]}"


def needed() -> list[Environment]:
    """Return the environments that the running Python does not stand for."""
    return [one for one in ENVIRONMENTS if not stands_for(one)]


def folder() -> Path:
    """Return where the environments are."""
    return Path(os.environ.get("WATCHERML_MATRIX") or ROOT / ".matrix")


def program(home: Path) -> Path:
    """Return the Python of an environment."""
    return home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def find(version: str) -> str | None:
    """Return a Python of this version on the machine, or None."""
    if sys.version_info[:2] == tuple(int(part) for part in version.split(".")):
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    kept = sorted(pyenv.glob(f"{version}.*/bin/python"), key=lambda path: path.parts[-3])
    candidates = [shutil.which(f"python{version}"), *(str(path) for path in reversed(kept))]
    for candidate in candidates:
        # A shim of pyenv is on PATH for versions that are not active, and fails.
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


def _wanted(one: Environment) -> str:
    return "\n".join((*CORE, *one.packages))


def is_complete(one: Environment, home: Path) -> bool:
    """Tell whether the environment was made to its end, with the packages that it has today."""
    complete = home / "complete"
    return complete.exists() and complete.read_text() == _wanted(one)


def build(one: Environment, place: Path) -> str:
    """Make an environment unless it is there; return what was done in a sentence."""
    home = place / one.name
    if is_complete(one, home):
        return f"{one.name}: there already"
    python = find(one.python)
    if python is None:
        return f"{one.name}: left out, no Python {one.python} on this machine"
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run([python, "-m", "venv", str(home)], check=True)
    command = [str(program(home)), "-m", "pip", "install", "-q", "--disable-pip-version-check", *CORE, *one.packages]
    subprocess.run(command, check=True)
    (home / "complete").write_text(_wanted(one))
    return f"{one.name}: made"


def main() -> None:
    """Build those that are needed, two at a time."""
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else folder()
    with ThreadPoolExecutor(2) as pool:
        for told in pool.map(lambda one: build(one, place), needed()):
            print(told)


if __name__ == "__main__":
    main()
