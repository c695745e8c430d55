"""Run the example notebooks from their first cell to their last and keep what they showed.

``python notebooks/execute.py`` executes all of them and writes the outputs into the files; names choose some of them.
Each runs in a temporary folder with a store of its own, without a GPU. What only this machine and this minute know does
not go into a file: time stamps, widget state, the temporary folder and where packages are installed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import secrets
import shutil
import site
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WIDGET = "application/vnd.jupyter.widget-view+json"
# A kernel's sockets may have about 100 characters.
RUNTIME_PREFIX = "wml-"
CONNECTION = ".kernel.json"
# The name of a cell in the tracebacks of its exceptions.
CELL_FILE = re.compile(re.escape(tempfile.gettempdir()) + r"/ipykernel_\d+/\d+\.py")


def execute(notebook: Any, folder: Path, *, seconds: int = 600, environment: Mapping[str, str] | None = None) -> Any:
    """Execute a notebook in a folder and return it with its outputs.

    ``seconds`` bounds each cell. ``environment`` is added to the kernel's. Raises ``CellExecutionError`` for a cell
    that fails without the tag ``raises-exception``.
    """
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    class Manager(AsyncKernelManager):
        """Names the connection file from the notebook's folder on: the kernel's command is part of what is recorded."""

        def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
            command = super().format_kernel_cmd(extra_arguments)
            return [CONNECTION if word == self.connection_file else word for word in command]

    runtime = Path(tempfile.mkdtemp(prefix=RUNTIME_PREFIX))
    try:
        manager = Manager(
            kernel_name="python3",
            transport="ipc",
            ip=f"{runtime}/{secrets.token_hex(4)}",
            connection_file=str(folder / CONNECTION),
        )
        client = NotebookClient(
            notebook, km=manager, timeout=seconds, store_widget_state=False, record_timing=False,
            resources={"metadata": {"path": str(folder)}},
        )  # fmt: skip
        kept = {name: value for name, value in os.environ.items() if name != "WATCHERML_DIR"}
        kept["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE.parent), kept.get("PYTHONPATH", "")]))
        kept.update(CUDA_VISIBLE_DEVICES="", COLUMNS="120", IPYTHONDIR=str(runtime / "ipython"), **(environment or {}))
        # The thread has an event loop of its own also where this one is inside another loop.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, client.async_execute(cleanup_kc=True, env=kept)).result()
    finally:
        shutil.rmtree(runtime, ignore_errors=True)


def clean(notebook: Any, folder: Path) -> Any:
    """Take out of an executed notebook what belongs to this machine and this minute; return it."""
    places = _places(folder)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [_cleaned(output, places) for output in cell.outputs if not _is_noise(output)]
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def _places(folder: Path) -> list[str]:
    """Return this machine's folders that outputs may name: longest first, because one may lie in another."""
    places = {str(folder), str(HERE.parent), str(Path(os.__file__).parent), *site.getsitepackages()}
    home = str(Path.home()) + os.sep
    # IPython writes what lies under the home folder with a tilde.
    places |= {f"~{os.sep}{place[len(home) :]}" for place in places if place.startswith(home)}
    return sorted(places, key=len, reverse=True)


def _cleaned(output: Any, places: list[str]) -> Any:
    if output.output_type == "error":
        output.traceback = [_without(line, places) for line in output.traceback]
        output.evalue = _without(output.evalue, places)
    elif output.output_type == "stream":
        output.text = _without(output.text, places)
    else:
        output.data.pop(WIDGET, None)
        for kind in ("text/plain", "text/html"):
            if kind in output.data:
                output.data[kind] = _without(output.data[kind], places)
    return output


def _without(text: str, places: list[str]) -> str:
    """Return a text in which files are named from their folder on, and a folder itself is a dot."""
    text = CELL_FILE.sub("cell.py", text)
    for place in places:
        text = text.replace(place + os.sep, "").replace(place, ".")
    return text


def _is_noise(output: Any) -> bool:
    return output.output_type == "display_data" and set(output.data) <= {WIDGET}


def main() -> None:
    """Execute what is named, else everything, and write it back."""
    import nbformat

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="how the file's name begins, for example 02 (default: all)")
    names = tuple(parser.parse_args().names)
    for path in sorted(HERE.glob("*.ipynb")):
        if names and not path.name.startswith(names):
            continue
        started, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix=RUNTIME_PREFIX))
        try:
            notebook = execute(nbformat.read(path, as_version=4), folder)
            nbformat.write(clean(notebook, folder), path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        sys.stdout.write(f"{path.name}: {time.monotonic() - started:.0f} s\n")


if __name__ == "__main__":
    main()
