"""A kernel of any Python, driven over its messages: cells in, outputs out, lines typed where it asks for them."""

from __future__ import annotations

import json
import os
import queue
import re
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Cell:
    """What one cell did."""

    status: str
    error: str = ""
    streams: str = ""
    shown: list = field(default_factory=list)
    count: int = 0

    @property
    def text(self):
        """Everything that a person reads below the cell."""
        return _COLOUR.sub(
            "", "\n".join([self.streams, self.error, *(one.get("text/plain", "") for one in self.shown)])
        )


class Kernel:
    """A kernel in a folder of its own, without a TCP port."""

    def __init__(self, python, folder, sockets):
        from jupyter_client.kernelspec import KernelSpecManager
        from jupyter_client.manager import KernelManager

        home = folder / "specs" / "matrix"
        home.mkdir(parents=True)
        argv = [str(python), "-W", "ignore", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        (home / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "matrix", "language": "python"}))
        work = folder / "work"
        work.mkdir()
        environment = {name: value for name, value in os.environ.items() if name != "WATCHERML_DIR"}
        environment.update(PYTHONPATH=str(ROOT), IPYTHONDIR=str(folder / "ipython"))
        self.manager = KernelManager(
            kernel_name="matrix",
            kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(folder / "specs")]),
            transport="ipc",
            ip=f"{sockets}/{secrets.token_hex(4)}",
            connection_file=f"{sockets}/{secrets.token_hex(4)}.json",
        )
        self.manager.start_kernel(cwd=str(work), env=environment)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=SECONDS)
        self.work = work
        self.widgets = {}  # the state of each widget model, as a front end would know it
        self.outputs = {}  # what each output that has a name shows now

    def run(self, source, *, typed=(), metadata=None):
        """Execute a cell; ``typed`` are the lines for its prompts, ``metadata`` what a front end sends with it."""
        content = {"code": source, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": True}
        message = self.client.session.msg("execute_request", {**content, "stop_on_error": False}, metadata=metadata)
        self.client.shell_channel.send(message)
        wanted, lines, cell, deadline = message["header"]["msg_id"], list(typed), Cell(""), time.monotonic() + SECONDS
        idle = False
        while not (idle and cell.status):
            assert time.monotonic() < deadline, f"no end of: {source}\n{cell.text}"
            idle = self._listen(wanted, cell, 0.002 if idle else 0.05) or idle
            self._answer(lines)
            for reply in self._waiting(self.client.shell_channel):
                if reply["parent_header"].get("msg_id") == wanted:
                    cell.status, cell.count = reply["content"]["status"], reply["content"].get("execution_count", 0)
        return cell

    def value(self, expression):
        """Return the value of an expression that JSON can carry."""
        cell = self.run(f"__import__('sys').stdout.write('<<' + __import__('json').dumps({expression}) + '>>');")
        assert cell.status == "ok", cell.text
        return json.loads(cell.streams.partition("<<")[2].rpartition(">>")[0])

    def widget(self, css):
        """Return the id of the newest widget model with a CSS class."""
        return [key for key, state in self.widgets.items() if css in state.get("_dom_classes", ())][-1]

    def click(self, model):
        """Do what a front end does when a person clicks a button."""
        data = {"method": "custom", "content": {"event": "click"}}
        self.client.shell_channel.send(self.client.session.msg("comm_msg", {"comm_id": model, "data": data}))

    def wait_until(self, expression):
        """Ask the kernel until an expression is true there."""
        deadline = time.monotonic() + SECONDS
        while not self.value(f"bool({expression})"):
            assert time.monotonic() < deadline, f"never true: {expression}"

    def stop(self):
        """End the kernel's process."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def _listen(self, wanted, cell, seconds):
        try:
            message = self.client.iopub_channel.get_msg(timeout=seconds)
        except queue.Empty:
            return False
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            cell.streams += content["text"]
        elif kind == "error":
            cell.error += "\n".join(content["traceback"])
        elif kind in ("display_data", "execute_result"):
            cell.shown.append(content["data"])
            self.follow(content)
        elif kind == "update_display_data":
            self.follow(content)
        elif kind == "comm_open":
            self.widgets[content["comm_id"]] = dict(content["data"].get("state", {}))
        elif kind == "comm_msg" and content["data"].get("method") == "update":
            self.widgets.setdefault(content["comm_id"], {}).update(content["data"]["state"])
        ours = message["parent_header"].get("msg_id") == wanted
        return ours and kind == "status" and content["execution_state"] == "idle"

    def follow(self, content):
        """Keep what an output with a name shows."""
        name = (content.get("transient") or {}).get("display_id")
        if name is not None:
            self.outputs[name] = content["data"]

    def _answer(self, lines):
        for message in self._waiting(self.client.stdin_channel):
            if message["msg_type"] == "input_request":
                self.client.input(lines.pop(0) if lines else "q")

    @staticmethod
    def _waiting(channel):
        while channel.msg_ready():
            yield channel.get_msg(timeout=0)
