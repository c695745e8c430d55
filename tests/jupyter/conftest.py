"""A real Jupyter server in a process of its own, with folders of its own; this process plays the kernel."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import pytest
from jupyter_tools import FOLDERS, Server

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def jupyter_folders():
    """Every folder that Jupyter reads and writes; kernels and servers that this process starts use them too."""
    home = Path(tempfile.mkdtemp(prefix="wml-"))  # short: a kernel's sockets may have about 100 characters
    with pytest.MonkeyPatch.context() as patch:
        for number, name in enumerate(FOLDERS):
            (home / str(number)).mkdir(mode=0o700)
            patch.setenv(name, str(home / str(number)))
        patch.delenv("WATCHERML_DIR", raising=False)
        yield home
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def server(jupyter_folders):
    """The server, with the extension enabled as its installed configuration does it."""
    settings = Path(os.environ["JUPYTER_CONFIG_DIR"], "jupyter_server_config.d")
    settings.mkdir()
    shutil.copy(ROOT / "extension" / "jupyter-config" / "watcherml.json", settings)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    (jupyter_folders / "root").mkdir()
    command = [
        sys.executable, "-m", "jupyter_server", "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--allow-root",
        "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={jupyter_folders / 'root'}",
    ]  # fmt: skip
    log = jupyter_folders / "server.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, start_new_session=True)
    made = Server(f"http://127.0.0.1:{port}", token)
    try:
        _wait_until_ready(process, made, log)
        yield made
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_until_ready(process, made, log):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if made.get("/api/status").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    pytest.fail(f"the server did not come up:\n{log.read_text('utf-8', 'replace')[-2_000:]}")
