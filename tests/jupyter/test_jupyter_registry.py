"""Registrations: a kernel's file is private and exact, goes with the kernel, and counts only if this user wrote it."""

import json
import os
import stat
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from jupyter_tools import register

from watcherml.api import registered
from watcherml.platform import ProcessId, this_process, write_atomically


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    """The folder of registrations, in a runtime folder of its own."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    return tmp_path / "runtime" / "watcherml"


def found():
    return registered.registrations(time.time())


def test_a_registration_is_private_and_comes_back_as_it_was(runtime, tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9 \xff") / ".watcherml"  # no UTF-8, as Linux allows it
    made = register(path, "a-kernel", since=12.5)
    (one,) = found()
    assert (one.path, one.kernel_id, one.since, one.process) == (path, "a-kernel", 12.5, this_process())
    assert one.store_id == made == registered.store_id(path) and len(made) == 32
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
    assert [stat.S_IMODE(file.stat().st_mode) for file in runtime.iterdir()] == [0o600]


def test_a_kernel_has_one_registration_and_two_kernels_have_two(runtime, tmp_path):
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as other:
        import psutil

        started = round(psutil.Process(other.pid).create_time(), 2)
        register(tmp_path / "first", "mine", since=1.0)
        register(tmp_path / "second", "mine", since=1.0)
        register(
            tmp_path / "first", "other", process=this_process()._replace(pid=other.pid, started=started), since=2.0
        )
        assert [(one.path.name, one.kernel_id) for one in found()] == [("second", "mine"), ("first", "other")]


def test_what_a_killed_kernel_left_is_removed(runtime, tmp_path):
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as other:
        import psutil

        process = this_process()._replace(pid=other.pid, started=psutil.Process(other.pid).create_time())
        register(tmp_path / "store", process=process)
        assert len(found()) == 1
        other.kill()
    assert not found() and not list(runtime.iterdir())


def test_what_another_machine_registered_is_left_alone_until_it_is_old(runtime, tmp_path):
    elsewhere = ProcessId(1, 1.0, "another boot")
    register(tmp_path / "store", process=elsewhere)
    assert not found() and len(list(runtime.iterdir())) == 1
    assert not registered.registrations(time.time() + 15 * 86_400) and not list(runtime.iterdir())


GOOD = {"version": 1, "path": "/somewhere", "kernel_id": "", "process": None, "since": 1.0}
WRONG = {
    "no JSON": b"{",
    "no object": b"[1]",
    "another version": {**GOOD, "version": 2},
    "a relative path": {**GOOD, "path": "../.."},
    "a path with a zero byte": {**GOOD, "path": "/some\0where"},
    "a path that is no text": {**GOOD, "path": 1},
    "no path": {key: value for key, value in GOOD.items() if key != "path"},
    "no time": {key: value for key, value in GOOD.items() if key != "since"},
    "a kernel that is no text": {**GOOD, "kernel_id": None},
    "a process of two parts": {**GOOD, "process": [1, 2.0]},
    "a truth for a number": {**GOOD, "process": [True, 1.0, "boot"]},
    "a start that is no number": {**GOOD, "process": [1, "soon", "boot"]},
    "no time that ends": {**GOOD, "since": float("inf")},
    "a time that is no number": {**GOOD, "since": float("nan")},
    "a start that is no moment": {**GOOD, "process": [1, float("nan"), "boot"]},
    "a path that no file can have": {**GOOD, "path": "/some\ud800where"},
    "brackets without end": b"[" * 60_000,
    "half a megabyte": json.dumps({**GOOD, "more": "x" * 500_000}).encode(),
}


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_a_file_that_is_no_registration_counts_for_nothing(runtime, body):
    runtime.mkdir(parents=True)
    if isinstance(body, dict):
        body = {**body, "process": body["process"] or list(this_process())}
        body = json.dumps(body).encode()
    write_atomically(runtime / "1-made.json", body)
    assert not found() and (runtime / "1-made.json").exists()


def test_the_good_form_of_those_files_does_count(runtime):
    runtime.mkdir(parents=True)
    body = json.dumps({**GOOD, "process": list(this_process())}).encode()
    write_atomically(runtime / "1-made.json", body)
    assert [one.path for one in found()] == [Path("/somewhere")]
    (runtime / "1-made.json").chmod(0o620)  # the group could have written it
    assert not found()
    (runtime / "1-made.json").chmod(0o600)
    (runtime / "1-made.json").rename(runtime / "elsewhere")
    (runtime / "1-made.json").symlink_to(runtime / "elsewhere")
    assert not found()
    (runtime / "1-made.json").unlink()
    os.mkfifo(runtime / "1-made.json", 0o600)  # reading it would wait for ever
    assert not found()


def test_without_jupyter_nothing_is_written(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "jupyter_core.paths", None)
    assert registered.folder() is None and not found()
    register(tmp_path / "store")


# -- a real kernel -------------------------------------------------------------------------------------------------


@pytest.fixture
def ask(jupyter_folders, tmp_path):
    """Run a cell in a real kernel and return what it printed; the kernel is ended with the test."""
    from jupyter_client.manager import KernelManager

    manager = KernelManager(kernel_name="python3", transport="ipc")
    manager.ip = f"{jupyter_folders}/socket"
    # As a Jupyter server calls it, which finds a kernel by this name.
    manager.connection_file = f"{os.environ['JUPYTER_RUNTIME_DIR']}/kernel-{uuid.uuid4()}.json"
    manager.start_kernel(cwd=str(tmp_path))
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=60)

    def run(source):
        printed = []

        def keep(message):
            content = message["content"]
            printed.append(content.get("text", "") + content.get("data", {}).get("text/plain", ""))

        reply = client.execute_interactive(source, timeout=60, output_hook=keep)
        assert reply["content"]["status"] == "ok", reply["content"]
        return "".join(printed)

    run.manager = manager
    yield run
    client.stop_channels()
    if manager.is_alive():
        manager.shutdown_kernel(now=True)
    manager.cleanup_resources()


def test_a_kernel_is_registered_from_load_ext_to_its_end_and_follows_its_store(ask, tmp_path):
    assert not found()
    ask("%load_ext watcherml")
    (one,) = found()
    assert one.path == tmp_path / ".watcherml" and not one.path.exists()
    assert str(uuid.UUID(one.kernel_id)) == one.kernel_id
    assert f"kernel-{one.kernel_id}.json" == Path(ask.manager.connection_file).name
    ask("%load_ext watcherml")
    assert found() == [one]

    look = "import time\nfrom watcherml.api import registered\nprint(registered.registrations(time.time()))"
    start = "import watcherml\nrun = watcherml.init('demo', {}, storage='elsewhere')"
    assert "elsewhere" in ask(f"{start}\n{look}\nrun.finish()"), "a cell that trains for hours has not ended yet"
    assert [(other.path, other.since) for other in found()] == [(tmp_path / "elsewhere", one.since)]

    # What a forked child's end does of ours; the rest of its end would wait for the kernel's threads.
    fork = "pid = os.fork()\nif pid == 0:\n    shell._watcherml_registry.remove()\n    os._exit(0)\nos.waitpid(pid, 0)"
    ask(f"import os\nshell = get_ipython()\n{fork}")
    assert len(found()) == 1, "a forked child took its parent's registration away"
    ask("%unload_ext watcherml")
    assert not found()

    ask("%cd -q /\n%load_ext watcherml")
    ask(f"%cd -q {tmp_path}")
    assert [other.path for other in found()] == [tmp_path / ".watcherml"]
    ask.manager.shutdown_kernel()  # asked politely, as a server does it
    assert not [path for path in registered.folder().iterdir() if path.suffix == ".json"]


def test_a_runtime_folder_that_cannot_be_written_costs_the_sidebar_and_nothing_else(ask, tmp_path):
    (tmp_path / "file").write_text("in the way")
    ask(f"import os\nos.environ['JUPYTER_RUNTIME_DIR'] = {str(tmp_path / 'file')!r}")
    assert ask("%load_ext watcherml") == ""
    ask("import watcherml\nrun = watcherml.init('demo', {})\nrun.finish()")
    assert "NotADirectoryError" in ask("%watcher status")
    assert watcherml_runs(tmp_path) == ["success"]


def watcherml_runs(folder):
    from watcherml import Storage

    return [row["status"] for row in Storage(folder / ".watcherml").list_runs()]
