"""One kernel for each environment, and one of the running Python, which every run of the suite has."""

import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from matrix_environments import find, folder, is_complete, needed, program
from matrix_kernel import Kernel
from matrix_shapes import SCRIPT, SETUP

HERE = "this python"


def _python_of(name):
    if name == HERE:
        pytest.importorskip("ipykernel")
        return sys.executable
    one = next(one for one in needed() if one.name == name)
    home = folder() / name
    if not is_complete(one, home):
        if find(one.python) is None:
            pytest.skip(f"no Python {one.python} on this machine")
        pytest.skip(f"{name} is not built: python tests/matrix/matrix_environments.py")
    return program(home)


@pytest.fixture(scope="session", params=[HERE, *(one.name for one in needed())])
def kernel(request, tmp_path_factory):
    """A kernel with the extension loaded and the shapes' names defined."""
    pytest.importorskip("jupyter_client")
    python = _python_of(request.param)
    sockets = tempfile.mkdtemp(prefix="wml-")  # a socket's path may have about 100 characters
    started = Kernel(python, Path(tmp_path_factory.mktemp("matrix")), sockets)
    try:
        (started.work / "script.py").write_text(SCRIPT)
        cell = started.run(SETUP)
        assert cell.status == "ok", cell.text
        yield started
    finally:
        started.stop()
        shutil.rmtree(sockets, ignore_errors=True)


@pytest.fixture
def clean(kernel):
    """The kernel, with nothing alive of an earlier test."""
    kernel.run("fresh()")
    return kernel


@pytest.fixture
def keeping(clean):
    """The kernel, told to keep the frames of a cell that ran out of memory."""
    clean.run("%watcher keep-frames on")
    yield clean
    clean.run("%watcher keep-frames off")
    clean.run("%watcher free")
