"""A real kernel through nbclient, and JupyterLab in a headless Chromium, each with folders of its own."""

import asyncio
import contextlib
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
from pathlib import Path

import pytest

ROOT = str(Path(__file__).resolve().parents[2])
WAIT_MS = 60_000
CHROMIUM_FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --disable-dev-shm-usage --disable-extensions"
).split()
QUIET = {"fetchNews": "false", "checkForUpdates": False}


def missing(reason):
    """Skip, or fail where the tests have to run."""
    if os.environ.get("WATCHERML_REQUIRE_BROWSER") == "1":
        pytest.fail(f"WATCHERML_REQUIRE_BROWSER=1, but {reason}")
    pytest.skip(reason)


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
    path = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH", "")]))
    yield {**os.environ, **folders, "PYTHONPATH": path}
    shutil.rmtree(home, ignore_errors=True)


# -- a kernel ----------------------------------------------------------------------------------------------------


class Kernel:
    """A notebook that grows cell by cell in a real kernel."""

    def __init__(self, client):
        self.client = client

    async def run(self, source):
        """Execute a cell and return it with its outputs."""
        import nbformat

        cell = nbformat.v4.new_code_cell(source)
        self.client.nb.cells.append(cell)
        await self.client.async_execute_cell(cell, len(self.client.nb.cells) - 1)
        return cell

    def widgets(self, css):
        """Return the ids of the widget models that have a CSS class."""
        return [key for key, state in self.client.widget_state.items() if css in state.get("_dom_classes", ())]

    def change(self, model, **state):
        """Do what a front end does when a person types into a field."""
        self._send(model, {"method": "update", "state": state, "buffer_paths": []})

    def click(self, model):
        """Do what a front end does when a person clicks a button."""
        self._send(model, {"method": "custom", "content": {"event": "click"}})

    def _send(self, model, data):
        message = self.client.kc.session.msg("comm_msg", {"comm_id": model, "data": data})
        self.client.kc.shell_channel.send(message)

    async def restart(self):
        """Kill the kernel's process and start a new one under the same client."""
        self.client.widget_state.clear()
        await self.client.km.restart_kernel(now=True)
        await self.client.kc.wait_for_ready(timeout=60)


@pytest.fixture
def kernel(jupyter_home, tmp_path, monkeypatch):
    """Run ``scenario(kernel)`` against a kernel whose folder is ``tmp_path``."""
    nbclient = pytest.importorskip("nbclient")
    from jupyter_client.manager import AsyncKernelManager
    from nbformat.v4 import new_notebook

    for name, value in jupyter_home.items():
        if os.environ.get(name) != value:
            monkeypatch.setenv(name, value)

    async def run(scenario):
        manager = AsyncKernelManager(kernel_name="python3", transport="ipc")
        client = nbclient.NotebookClient(
            new_notebook(), km=manager, timeout=90, allow_errors=True, resources={"metadata": {"path": str(tmp_path)}}
        )
        async with client.async_setup_kernel():
            await scenario(Kernel(client))

    return lambda scenario: asyncio.run(run(scenario))


def texts(cell, kind="text/plain"):
    """Return what a cell printed and displayed, as one text."""
    found = []
    for output in cell.outputs:
        if output.output_type == "stream":
            found.append(output.text)
        elif output.output_type == "error":
            found.append(f"{output.ename}: {output.evalue}")
        else:
            found.append(output.data.get(kind, ""))
    return "\n".join(found)


# -- a browser ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def chromium():
    """A headless Chromium of the system."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed: pip install playwright")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        missing("there is no Chromium: apt-get install chromium fonts-dejavu-core")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def lab_server(jupyter_home, tmp_path_factory):
    """JupyterLab on a free port of this machine; yields (address, token, folder)."""
    pytest.importorskip("jupyterlab")
    folder = tmp_path_factory.mktemp("lab")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}",
        "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}",
        "--allow-root", "--LabApp.expose_app_in_browser=True", "--LanguageServerManager.autodetect=False",
        "--LabApp.extension_manager=readonly",
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


class Lab:
    """One notebook, open in JupyterLab."""

    def __init__(self, page, errors):
        self.page = page
        self.errors = errors

    def command(self, name, **arguments):
        """Execute a command of JupyterLab."""
        return self.page.evaluate(
            "([name, arguments]) => window.jupyterapp.commands.execute(name, arguments)", [name, arguments]
        )

    def run_cell(self, number):
        """Execute one cell and wait until the kernel is idle again."""
        self.page.evaluate(f"() => {{ {_CURRENT}.content.activeCellIndex = {number} }}")
        self.command("notebook:run-cell")
        self.page.wait_for_function(
            f"() => {_CURRENT}.content.widgets[{number}].model.executionCount !== null"
            f" && {_CURRENT}.sessionContext.session?.kernel?.status === 'idle'"
        )

    def output(self, number):
        """Return the locator of a cell's output area."""
        return self.page.locator(f".jp-CodeCell >> nth={number}").locator(".jp-OutputArea").first

    def shot(self, locator, name):
        """Write what a locator shows to WATCHERML_SHOTS, if that is set, else to a temporary folder."""
        folder = Path(os.environ.get("WATCHERML_SHOTS") or tempfile.gettempdir(), "watcherml-shots")
        folder.mkdir(parents=True, exist_ok=True)
        locator.screenshot(path=str(folder / f"{name}.png"))


_CURRENT = "window.jupyterapp.shell.currentWidget"


@pytest.fixture
def open_notebook(chromium, lab_server):
    """Open a notebook made of these cells in a folder of its own; yields a function."""
    address, token, root = lab_server
    opened = []

    def open_one(name, cells):
        import nbformat

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
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{address}/lab/tree/{name}/{name}.ipynb?token={token}&reset")
        page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
        page.wait_for_function(f"() => {_CURRENT}?.sessionContext?.session?.kernel?.status === 'idle'")
        opened.append(context)
        return Lab(page, errors)

    yield open_one
    for context in opened:
        context.close()
