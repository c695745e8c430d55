"""A real kernel through nbclient, and JupyterLab in a headless Chromium, each with folders of its own."""

import asyncio
import contextlib
import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sidebar_home
from e2e_tools import CURRENT, Kernel, Lab
from headless import WAIT_MS, missing
from headless import chromium as chromium

ROOT = str(Path(__file__).resolve().parents[2])
# Notebook 7.6 raises these by itself while it loads, on an empty notebook too: they say nothing of a panel.
OF_NOTEBOOK = (
    "Cannot read properties of undefined (reading 'schema')",
    "Command 'filebrowser:open-path' not registered.",
)
QUIET = {"fetchNews": "false", "checkForUpdates": False}


@pytest.fixture(scope="session")
def jupyter_home():
    """Every folder Jupyter writes to, in a short path: a kernel's sockets may have about 100 characters."""
    home = Path(tempfile.mkdtemp(prefix="wml-"))
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTERLAB_SETTINGS_DIR",
             "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR")  # fmt: skip
    folders = {name: str(home / str(number)) for number, name in enumerate(names)}
    for folder in folders.values():
        Path(folder).mkdir(mode=0o700)
    notifications = Path(folders["JUPYTERLAB_SETTINGS_DIR"], "@jupyterlab/apputils-extension")
    notifications.mkdir(parents=True)
    (notifications / "notification.jupyterlab-settings").write_text(json.dumps(QUIET))
    sidebar_home.provide(folders["JUPYTER_CONFIG_DIR"], folders["JUPYTER_DATA_DIR"])
    path = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH", "")]))
    # Else the sidebar that is installed in this environment comes before that of this tree.
    yield {**os.environ, **folders, "PYTHONPATH": path, "JUPYTER_PREFER_ENV_PATH": "0"}
    shutil.rmtree(home, ignore_errors=True)


# -- a kernel ----------------------------------------------------------------------------------------------------


def run_async(work):
    """Run a coroutine in a thread of its own: Playwright keeps an event loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def notebook_client(notebook, folder, **options):
    """Return an nbclient of a kernel that works in a folder, over sockets without a port."""
    nbclient = pytest.importorskip("nbclient")
    from jupyter_client.manager import AsyncKernelManager

    # Without `ip` the sockets are named relative to the working directory, and the kernel has another one.
    sockets = f"{os.environ['JUPYTER_RUNTIME_DIR']}/{secrets.token_hex(4)}"
    manager = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=sockets)
    return nbclient.NotebookClient(notebook, km=manager, resources={"metadata": {"path": str(folder)}}, **options)


@pytest.fixture(scope="session")
def in_jupyter_home(jupyter_home):
    """Let kernels that this process starts use the folders of ``jupyter_home``."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in jupyter_home.items():
            if os.environ.get(name) != value:
                patch.setenv(name, value)
        yield


@pytest.fixture
def kernel(in_jupyter_home, tmp_path):
    """Run ``scenario(kernel)`` against a kernel whose folder is ``tmp_path``."""
    from nbformat.v4 import new_notebook

    async def run(scenario):
        client = notebook_client(new_notebook(), tmp_path, timeout=90, allow_errors=True)
        async with client.async_setup_kernel(cleanup_kc=True):
            await scenario(Kernel(client))

    return lambda scenario: run_async(run(scenario))


@pytest.fixture(scope="session")
def run_notebook(in_jupyter_home):
    """Execute a whole notebook in a folder and return it with its outputs.

    A cell that has to fail carries the tag ``raises-exception``; any other error fails the test.
    """

    def run(notebook, folder, timeout=120):
        client = notebook_client(notebook, folder, timeout=timeout, store_widget_state=False)
        return run_async(client.async_execute(cleanup_kc=True))

    return run


# -- a browser ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def lab_server(jupyter_home, tmp_path_factory):
    """JupyterLab on a free port of this machine; yields (address, token, folder)."""
    if importlib.util.find_spec("jupyterlab") is None:
        missing("JupyterLab is not installed: pip install jupyterlab")
    folder = tmp_path_factory.mktemp("lab")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}",
        "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}",
        "--allow-root", "--LabApp.expose_app_in_browser=True", "--LanguageServerManager.autodetect=False",
        "--LabApp.extension_manager=readonly", "--JupyterNotebookApp.expose_app_in_browser=True",
        "--KernelRestarter.time_to_dead=0.3",  # between two looks at whether a kernel has died
    ]  # fmt: skip
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, env=jupyter_home, stdout=log, stderr=log, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_until_ready(process, f"{address}/api/status?token={token}", folder / "server.log")
        yield address, token, folder
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_until_ready(process, address, log):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            with urllib.request.urlopen(address, timeout=5) as answer:
                if answer.status == 200:
                    return
        time.sleep(0.1)
    pytest.fail(f"JupyterLab did not come up:\n{log.read_text('utf-8', 'replace')[-2_000:]}")


@pytest.fixture
def open_notebook(chromium, lab_server):
    """Open a notebook made of these cells in a folder of its own, in JupyterLab or in Notebook 7; yields a function."""
    address, token, root = lab_server
    opened = []

    def open_one(name, cells, front="lab"):
        import nbformat

        if front == "notebook" and importlib.util.find_spec("notebook") is None:
            missing("Notebook 7 is not installed: pip install 'notebook>=7'")
        folder = root / name
        folder.mkdir()
        notebook = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(source) for source in cells],
            metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        )
        nbformat.write(notebook, str(folder / f"{name}.ipynb"))
        context = chromium.new_context(viewport={"width": 1280, "height": 1600})
        context.set_default_timeout(WAIT_MS)
        page, errors = context.new_page(), []
        theirs = OF_NOTEBOOK if front == "notebook" else ()
        page.on("pageerror", lambda error: str(error) in theirs or errors.append(str(error)))
        place = "lab/tree" if front == "lab" else "notebooks"
        page.goto(f"{address}/{place}/{name}/{name}.ipynb?token={token}" + ("&reset" if front == "lab" else ""))
        page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
        page.wait_for_function(f"() => {CURRENT}?.sessionContext?.session?.kernel?.status === 'idle'")
        opened.append(context)
        return Lab(page, errors, folder)

    yield open_one
    for context in opened:
        context.close()
