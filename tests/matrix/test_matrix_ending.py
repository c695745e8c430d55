"""A kernel that is shut down: what was live in its outputs is replaced by text and HTML with its last message."""

import queue
import secrets
import shutil
import sys
import tempfile
import time

import pytest
from matrix_kernel import Kernel

VIEW = "application/vnd.jupyter.widget-view+json"
OPEN = "%load_ext watcherml\nimport watcherml\nrun = watcherml.init('ending', {})\nrun.log_metric('loss', 1, step=1)"


@pytest.fixture(scope="module")
def ending(tmp_path_factory):
    """A kernel of this Python that a test may shut down."""
    pytest.importorskip("ipykernel")
    sockets = tempfile.mkdtemp(prefix=f"wml-{secrets.token_hex(2)}")
    started = Kernel(sys.executable, tmp_path_factory.mktemp("ending"), sockets)
    yield started
    started.stop()
    shutil.rmtree(sockets, ignore_errors=True)


def wait_for_updates(kernel, condition):
    """Follow what the kernel says until a condition holds; the seconds only end a test that fails."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, kernel.outputs
        try:
            message = kernel.client.iopub_channel.get_msg(timeout=0.1)
        except queue.Empty:
            continue
        if message["msg_type"] == "update_display_data":
            kernel.follow(message["content"])


def test_every_output_of_a_panel_ends_as_text_and_html(ending):
    kernel = ending
    assert kernel.run(f"{OPEN}\ndisplay(run)\nrun").status == "ok"
    kernel.run("again = watcherml.notebook.panels.run.run_panel(run)\ndisplay(again)\nagain")
    assert len(kernel.outputs) == 4 and all(VIEW in one for one in kernel.outputs.values())
    assert kernel.value("[Out[1] is run, _ is run]") == [True, False]
    kernel.run("%%capture caught\ndisplay(run)")
    kernel.run("run.finish()")  # a thread sees it, after the cell or within it
    wait_for_updates(kernel, lambda: all(VIEW not in one for one in kernel.outputs.values()))
    assert len(kernel.outputs) == 4, "what is caught is no output"
    assert all("finished" in one["text/plain"] and "finished" in one["text/html"] for one in kernel.outputs.values())
    shown = kernel.run("run").shown[-1]
    assert VIEW not in shown and len(kernel.outputs) == 4


def test_a_shutdown_replaces_what_is_still_live(ending):
    """After the test above, in the same kernel."""
    kernel = ending
    kernel.run("run = watcherml.init('ending', {})\nrun")
    (name,) = [name for name, one in kernel.outputs.items() if VIEW in one]
    kernel.manager.request_shutdown()
    wait_for_updates(kernel, lambda: VIEW not in kernel.outputs[name])
    assert "was interrupted" in kernel.outputs[name]["text/plain"]
