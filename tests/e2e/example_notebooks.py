"""The example notebooks: where they are, how they run, and what their cells showed."""

import importlib.util
import re
from pathlib import Path

import nbformat
import pytest
from e2e_tools import texts
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "notebooks"
NAMES = sorted(path.name for path in FOLDER.glob("*.ipynb"))

_spec = importlib.util.spec_from_file_location("execute_notebooks", FOLDER / "execute.py")
execute_notebooks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(execute_notebooks)


def read(name):
    return nbformat.read(FOLDER / name, as_version=4)


def named(number):
    """The file name of a notebook by its number."""
    return next(name for name in NAMES if name.startswith(number))


def run(name, folder):
    """Execute a notebook in a folder, as ``notebooks/execute.py`` does, and clean it likewise."""
    folder.mkdir(parents=True, exist_ok=True)
    notebook = read(name)
    for one in notebook.cells:
        if one.cell_type == "code":
            one.outputs = []
    try:
        return execute_notebooks.clean(execute_notebooks.execute(notebook, folder), folder)
    except CellExecutionError as error:
        # The cell that fails is seldom the one that says why.
        told = [shown(one)[:2_000] for one in notebook.cells if one.get("outputs")]
        pytest.fail("\n".join([str(error), "What the last cells showed:", *told[-4:]]))


def cell(notebook, start):
    """The code cell whose source begins like that, or holds it if none does."""
    code = [one for one in notebook.cells if one.cell_type == "code"]
    return next((one for one in code if one.source.startswith(start)), None) or next(
        one for one in code if start in one.source
    )


def shown(one, kind="text/plain"):
    """What a cell printed and displayed, as one text without line breaks of its own."""
    return re.sub(r"\s+", " ", texts(one, kind))


def failed(notebook):
    """The code cells with an error among their outputs."""
    return [one for one in notebook.cells if any(out.output_type == "error" for out in one.get("outputs", ()))]


def kinds(one):
    """The kinds of a cell's outputs, in order; what one stream was cut into counts once."""
    found = []
    for output in one.outputs:
        what = (output.output_type, getattr(output, "ename", ""), *sorted(output.get("data", ())))
        if output.output_type == "stream":
            what = ("stream", output.name)
        if not found or found[-1] != what or what[0] != "stream":
            found.append(what)
    return found
