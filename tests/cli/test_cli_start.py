"""What a plain ``watcher runs`` loads: the start of the command that people type most."""

import argparse
import json
import subprocess
import sys

import pytest
from big_store import fill

from watcherml.cli.main import command_parser
from watcherml.store.storage import Storage

# Each of these costs milliseconds, and a list of runs needs none of them.
NOT_LOADED = (
    "watcherml.api", "watcherml.campaign", "watcherml.forensics", "watcherml.protocol", "watcherml.recorder",
    "watcherml.sealed", "watcherml.frames", "watcherml.contract.contract", "watcherml.store.journal",
    "watcherml.store.evidence", "watcherml.store.audit", "psutil", "ctypes", "dataclasses", "inspect", "hashlib",
    "importlib.metadata", "importlib.resources", "traceback",
)  # fmt: skip
CODE = """
import json, sys
from watcherml.cli.main import main
sys.argv[:1] = ["watcher"]
code = main()
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("there", [True, False], ids=["a store", "no store"])
def test_a_list_of_runs_loads_only_what_it_shows(there, form, tmp_path):
    if there:
        fill(Storage(tmp_path / "store"), runs=3, points=5)
    words = [sys.executable, "-c", CODE, "--data-dir", str(tmp_path / "store"), "runs", "--format", form]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    code, loaded = json.loads(done.stderr)
    assert code == 0 and ("project-2-run-000002" in done.stdout) == there
    assert not set(loaded) & set(NOT_LOADED)


@pytest.mark.parametrize("columns", ["60", "140", "0", "wide", ""])
@pytest.mark.parametrize("name", ["runs", "recover"])
def test_help_is_laid_out_as_argparse_does_it(name, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    parser = command_parser(name)
    ours = parser.format_help()
    parser.formatter_class = argparse.HelpFormatter
    assert ours == parser.format_help()
