"""A store that is locked, cannot be written, or goes away below a notebook: nothing of a failure or a cell is lost."""

import sqlite3
import time

import pytest
from notebook_shell import CONFIG, INIT, OOM

from watcherml.notebook.session import Session

FAIL = f"raise RuntimeError({OOM!r})"


@pytest.fixture
def locked(notebook, tmp_path):
    """A notebook with an open run, whose store somebody else keeps locked until the returned call."""
    notebook.run(INIT)
    notebook["run"].join_facts()
    notebook["run"]._recording._patience.hurry(0.2)
    other = sqlite3.connect(tmp_path / ".watcherml" / "watcherml.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    yield notebook, lambda: other.execute("ROLLBACK") if other.in_transaction else None
    other.close()


@pytest.mark.filterwarnings("ignore:WatcherML could not record")
def test_a_locked_store_costs_no_cell_and_no_evidence(locked):
    notebook, unlock = locked
    run, session = notebook["run"], Session.of(notebook.shell)
    began = time.monotonic()
    typo = notebook.run("undefined_name")
    assert "The store does not take this failure" in typo.text and "is kept here until it does" in typo.text
    assert "could not capture" not in typo.text
    shown = notebook.run("run")
    assert shown.error is None
    assert time.monotonic() - began < 20
    notebook.run("x = 'while it was locked'")
    unlock()
    session._refused_until = 0.0  # the time has passed
    notebook.run("y = 'afterwards'")
    sources = [cell["source"] for cell in notebook.store.evidence.cells(session_id=session.session_id)]
    assert sources[-4:] == ["undefined_name", "run", "x = 'while it was locked'", "y = 'afterwards'"]
    notebook.run("run.finish()")
    assert notebook.store.get_capsule(run.run_id)["failure"]["exception_type"] == "NameError"
    assert len(session.problems) <= 1


@pytest.mark.filterwarnings("ignore:WatcherML could not record")
def test_cells_that_a_store_refused_are_offered_once_more_when_the_session_ends(locked):
    notebook, unlock = locked
    notebook.run("x = 'refused'")
    session_id = Session.of(notebook.shell).session_id
    unlock()
    notebook.shell.run_line_magic("unload_ext", "watcherml")
    assert notebook.store.evidence.cells(session_id=session_id)[-1]["source"] == "x = 'refused'"


@pytest.mark.filterwarnings("ignore:WatcherML could not record")
def test_a_failure_whose_run_nobody_could_write_is_shown_and_captured_later(notebook, tmp_path):
    (tmp_path / ".watcherml").write_text("a file, so that no folder can be made here")
    notebook.run(INIT)
    told = notebook.run(FAIL)
    assert "Memory given back" in told.text and "CUDA ran out of memory" in told.text
    assert "nothing of that could be written" in told.text and "`%watcher capture`" in told.text
    assert "%%watcher recover" not in told.text
    (tmp_path / ".watcherml").unlink()
    shown = notebook.run("%watcher capture")
    assert "on record now" in shown.value.text() and "--config NAME" not in shown.value.text()
    (row,) = notebook.store.list_runs()
    assert (row["project"], row["status"], row["config"]) == ("demo", "failed", CONFIG)
    assert notebook.store.get_capsule(row["run_id"])["failure"]["class"] == "cuda_out_of_memory"


def test_a_value_that_cannot_be_shown_says_so_and_ends_no_cell(notebook, monkeypatch):
    from watcherml.notebook import faces

    notebook.run(INIT)
    monkeypatch.setattr(faces, "run_panel", lambda run: 1 / 0)
    shown = notebook.run("run")
    data, _ = notebook.shell.display_formatter.format(notebook["run"])
    assert shown.error is None and "This Run cannot be shown now" in data["text/plain"]


# -- loaded late ------------------------------------------------------------------------------------------------------


def test_a_run_that_was_open_before_the_extension_is_taken_up(plain_shell):
    plain_shell.run(INIT)
    plain_shell.run("%load_ext watcherml")
    assert plain_shell["run"].run_id in plain_shell.run("%watcher status").value.text()
    told = plain_shell.run(FAIL)
    assert plain_shell["run"].status == "failed" and "No run was open" not in told.text


def test_loading_again_takes_up_an_open_run_and_a_second_one_replaces_it(notebook):
    notebook.run(INIT)
    first = notebook["run"]
    notebook.run("%reload_ext watcherml")
    assert Session.of(notebook.shell).runs.newest() is first
    notebook.run(INIT)
    assert (first.status, notebook["run"].status) == ("interrupted", "running")


def test_a_run_of_a_with_block_or_of_a_thread_is_taken_up_but_not_replaced(plain_shell):
    plain_shell.run(
        "import threading, watcherml\nentered = watcherml.init('entered').__enter__()\nmade = []\n"
        "one = threading.Thread(target=lambda: made.append(watcherml.init('threaded')))\none.start(); one.join()"
    )
    plain_shell.run("%load_ext watcherml")
    plain_shell.run(INIT)
    assert (plain_shell["entered"].status, plain_shell["made"][0].status) == ("running", "running")
