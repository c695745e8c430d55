"""A plain IPython shell in a fresh folder, with what its cells display caught as data."""

import atexit
import sys

import pytest
from notebook_shell import INIT, OOM, Notebook


@pytest.fixture
def plain_shell(tmp_path, monkeypatch):
    """A shell without the extension; the folder it works in is empty."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    from watcherml.api import record

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("WATCHERML_DIR", raising=False)
    opened = []
    forget = record.on_start(opened.append)
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config)
    notebook = Notebook(shell)
    yield notebook
    shell.run_line_magic("unload_ext", "watcherml")
    forget()
    for run in opened:
        run.interrupt("the test is over")
    record.set_default_project(None)
    for name in ("last_exc", "last_value", "last_type", "last_traceback"):
        if hasattr(sys, name):
            delattr(sys, name)
    atexit.unregister(shell.atexit_operations)
    shell.atexit_operations()
    InteractiveShell.clear_instance()


@pytest.fixture
def notebook(plain_shell):
    """A shell with the extension loaded."""
    plain_shell.run("%load_ext watcherml")
    return plain_shell


@pytest.fixture
def failed(notebook):
    """A notebook whose run has just died of an out-of-memory cell."""
    notebook.run(INIT)
    notebook.run(f"def fail():\n    raise RuntimeError({OOM!r})\nfail()")
    return notebook
