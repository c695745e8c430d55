"""Executed cells on record: which, in what order, with what secrets taken out, and under which run."""

from types import SimpleNamespace

import pytest
from notebook_shell import INIT, OOM

from watcherml.notebook import cells
from watcherml.notebook.session import Session


def rows(notebook, **wanted):
    return notebook.store.evidence.cells(**wanted)


def test_loading_and_running_cells_makes_no_store(notebook, tmp_path):
    notebook.run("x = 1")
    notebook.run("1 / 0")
    assert not (tmp_path / ".watcherml").exists()


def test_cells_before_the_first_run_are_on_record_once_there_is_a_store(notebook):
    notebook.run("x = 1")
    notebook.run(INIT)
    sources = [row["source"] for row in rows(notebook)]
    assert sources == ["%load_ext watcherml", "x = 1", INIT]
    assert [row["seq"] for row in rows(notebook)] == [1, 2, 3]


def test_a_cell_is_recorded_with_its_ending(notebook):
    notebook.run(INIT)
    notebook.run("x = 2")
    notebook.run("raise KeyError('k')")
    notebook.run("raise KeyboardInterrupt")
    notebook.run("def broken(:")
    ok, error, interrupted, syntax = rows(notebook)[-4:]
    assert (ok["status"], ok["error_type"]) == ("ok", None)
    assert (error["status"], error["error_type"], error["error_message"]) == ("error", "KeyError", "'k'")
    assert (interrupted["status"], interrupted["error_type"]) == ("interrupted", "KeyboardInterrupt")
    assert (syntax["status"], syntax["error_type"]) == ("error", "SyntaxError")
    assert error["execution_count"] == ok["execution_count"] + 1
    assert all(row["seconds"] >= 0 and row["started_at"] > 1e9 for row in rows(notebook))


def test_secrets_are_taken_out_before_a_cell_is_kept(notebook):
    secret = "hf_" + "abcdefghij" * 3
    notebook.run(INIT)
    notebook.run(f"token = {secret!r}\nraise ValueError(token)")
    row = rows(notebook)[-1]
    assert secret not in row["source"] + row["error_message"]
    assert "[redacted:" in row["source"] and "[redacted:" in row["error_message"]


def test_a_run_opened_inside_a_cell_gets_that_cell(notebook):
    notebook.run("x = 1")
    notebook.run(INIT + "\nrun.log_metric('loss', 1.0, 0)")
    notebook.run("y = 2")
    run_id = notebook["run"].run_id
    assert [row["run_id"] for row in rows(notebook)] == [None, None, run_id, run_id]
    assert "run.log_metric" in rows(notebook, run_id=run_id)[0]["source"]


def test_a_run_of_the_cell_that_loads_the_extension_gets_that_cell(plain_shell):
    plain_shell.run("%load_ext watcherml\n" + INIT)
    (row,) = rows(plain_shell)
    assert row["run_id"] == plain_shell["run"].run_id
    assert row["source"].startswith("%load_ext")


def test_a_with_block_gets_its_cell_after_it_has_ended(notebook):
    notebook.run(f"{INIT.replace('run = ', 'with ')} as run:\n    run.log_metric('loss', 1.0, 0)")
    assert rows(notebook)[-1]["run_id"] == notebook["run"].run_id
    assert notebook.store.get_run(notebook["run"].run_id)["status"] == "success"


def test_a_magic_that_runs_its_body_as_a_cell_is_recorded_once(notebook):
    shell = notebook.shell
    shell.register_magic_function(lambda line, cell: shell.run_cell(cell) and None, "cell", "twice")
    notebook.run(INIT)
    before = len(rows(notebook))
    notebook.run("%%twice\nz = 3")
    notebook.run("%%twice\nraise ValueError('inner')")
    good, bad = rows(notebook)[before:]
    assert (good["status"], bad["status"], bad["error_type"]) == ("ok", "error", "ValueError")


def test_loading_again_records_nothing_twice_and_unloading_stops(notebook):
    notebook.run("%load_ext watcherml")
    notebook.run("%reload_ext watcherml")
    notebook.run(INIT)
    notebook.run("x = 1")
    assert [row["source"] for row in rows(notebook)].count("x = 1") == 1
    notebook.run("%unload_ext watcherml")
    notebook.run("x = 2")
    assert "x = 2" not in [row["source"] for row in rows(notebook)]
    assert "watcher" not in notebook.shell.magics_manager.magics["line"]
    assert Session.of(notebook.shell) is None


def test_a_store_that_cannot_be_written_costs_one_notice_and_no_cell(notebook, tmp_path):
    notebook.run("x = 1")
    (tmp_path / ".watcherml").mkdir()
    (tmp_path / ".watcherml" / "watcherml.db").write_bytes(b"something else" * 100)
    first, second = notebook.run("y = 2"), notebook.run("y")
    assert (first.error, second.error, second.value) == (None, None, 2)
    assert first.text.count("could not follow") == 1
    assert second.shown == []
    assert "Problems" in notebook.run("%watcher status").value.text()


@pytest.mark.parametrize(
    ("info", "header", "expected"),
    [
        (SimpleNamespace(cell_id="abc-1"), None, "abc-1"),
        (SimpleNamespace(cell_id=None), {"metadata": {"cellId": "vs-2"}}, "vs-2"),
        (SimpleNamespace(), {"metadata": {"colab": {"cell_id": "co-3"}}}, "co-3"),
        (SimpleNamespace(cell_id=None), {"metadata": {}}, None),
        (SimpleNamespace(cell_id=None), None, None),
    ],
)
def test_each_front_end_names_its_cells(info, header, expected):
    shell = SimpleNamespace(get_parent=lambda: header) if header else SimpleNamespace()
    assert cells.cell_identity(info, shell) == expected


def test_a_cell_without_a_name_gets_its_count_and_a_hash(notebook):
    notebook.run(INIT)
    assert rows(notebook)[-1]["cell_id"].startswith(f"in-{rows(notebook)[-1]['execution_count']}-")


def test_the_capsule_holds_the_cells_and_the_one_that_failed(notebook):
    notebook.run("learning_rate = 0.1")
    notebook.run(INIT)
    notebook.run(f"raise RuntimeError({OOM!r})")
    capsule = notebook.store.get_capsule(notebook["run"].run_id)
    piece = next(one for one in capsule["evidence"] if one["id"] == "EV-11")
    assert [cell["source"] for cell in piece["data"]][1:3] == ["learning_rate = 0.1", INIT]
    assert (piece["data"][-1]["status"], piece["data"][-1]["error_type"]) == ("error", "RuntimeError")


def test_the_capsule_of_a_with_block_holds_the_cell_that_is_still_running(notebook):
    notebook.run(f"{INIT.replace('run = ', 'with ')} as run:\n    raise RuntimeError({OOM!r})")
    capsule = notebook.store.get_capsule(notebook["run"].run_id)
    piece = next(one for one in capsule["evidence"] if one["id"] == "EV-11")
    assert piece["data"][-1]["status"] == "running"
    assert "with watcherml.init" in piece["data"][-1]["source"]


def test_an_exception_that_cannot_be_printed_and_text_that_cannot_be_encoded(notebook):
    class Bad(Exception):
        def __str__(self):
            raise OSError

    assert cells.Ending.of(Bad()) == cells.Ending("error", "Bad", "")
    assert cells.Ending.of(ValueError("\ud800")).error_message == "\\ud800"
    notebook.run(INIT)
    notebook.run("text = '\ud800'")
    notebook.run("x = 1")
    assert [row["source"] for row in rows(notebook)[-2:]] == ["text = '\\ud800'", "x = 1"]


def test_a_capsule_takes_a_bounded_amount_of_source():
    history = cells.CellHistory("s")
    for number in range(300):
        history.begin(f"# {number}\n" + "x" * 5_000, None)
        history.end(cells.Ending("ok"), number, None)
    kept = history.evidence()
    assert sum(len(cell["source"]) for cell in kept) <= cells.CAPSULE_CHARACTERS
    assert kept[-1]["source"].startswith("# 299") and len(kept) < 200


# -- a run that a later init() leaves behind ----------------------------------------------------------------------


def status(notebook, run):
    row = notebook.store.get_run(run.run_id)
    return row["status"], row["end_reason"]


def test_a_second_init_ends_the_unfinished_run(notebook):
    notebook.run(INIT)
    first = notebook["run"]
    outcome = notebook.run(INIT)
    assert status(notebook, first) == ("interrupted", f"superseded by {notebook['run'].run_id}")
    assert first.status == "interrupted" and notebook["run"].status == "running"
    assert "was not finished" in outcome.text
    shown = notebook.run(f"%watcher inspect {first.run_id}").value.text()
    assert "was interrupted" in shown and "a person" not in shown  # nobody has stopped it


def test_a_run_whose_last_cell_failed_ends_as_failed(notebook):
    notebook.run(INIT)
    first = notebook["run"]
    notebook.run("run.log_metric('loss', 3.0, 7)\nraise ValueError('bad data')")
    notebook.run(INIT)
    found, reason = status(notebook, first)
    assert found == "failed" and "superseded by" in reason and "ValueError" in reason
    assert [(point["name"], point["step"]) for point in notebook.store.get_metrics(first.run_id)] == [("loss", 7)]


def test_a_cell_that_went_well_after_the_failure_counts(notebook):
    notebook.run(INIT)
    first = notebook["run"]
    notebook.run("raise ValueError('bad data')")
    notebook.run("x = 1")
    notebook.run(INIT)
    assert status(notebook, first)[0] == "interrupted"


def test_runs_left_open_in_a_loop_end_with_the_cell(notebook):
    notebook.run("import watcherml\nruns = [watcherml.init('loop') for _ in range(3)]")
    assert [run.status for run in notebook["runs"]] == ["interrupted", "interrupted", "running"]


@pytest.mark.parametrize(
    "inner",
    [
        "with watcherml.init('inner') as inner:\n    pass",
        "def go():\n    with watcherml.init(\n        'inner',\n    ) as inner:\n        return inner\ninner = go()",
        "inner = watcherml.Run('inner')\nwith inner:\n    pass",
        "def make():\n    return watcherml.init('inner')\nwith make() as inner:\n    pass",
        "import contextlib\n@contextlib.contextmanager\ndef tracked():\n    made = watcherml.init('inner')\n"
        "    yield made\n    made.finish()\nwith tracked() as inner:\n    pass",
    ],
)
def test_a_with_block_does_not_end_an_open_run(notebook, inner):
    notebook.run(INIT)
    notebook.run(inner)
    assert (notebook["run"].status, notebook["inner"].status) == ("running", "success")


@pytest.mark.parametrize(
    "outer",
    [
        "with watcherml.init('outer') as outer:\n    inner = watcherml.init('inner')\n    seen = outer.status",
        "outer = early\nwith outer:\n    inner = watcherml.init('inner')\n    seen = outer.status",
    ],
)
def test_a_run_that_is_open_in_a_with_is_not_ended(notebook, outer):
    notebook.run("import watcherml\nearly = watcherml.Run('early')")
    notebook.run(outer)
    assert notebook["seen"] == "running"
    assert (notebook["outer"].status, notebook["inner"].status) == ("success", "running")


def test_a_started_run_that_a_later_cell_opens_with_with_is_not_ended(notebook):
    notebook.run(INIT)
    notebook.run("with run:\n    inner = watcherml.init('inner')\n    seen = run.status")
    assert (notebook["seen"], notebook["run"].status, notebook["inner"].status) == ("running", "success", "running")


def test_a_run_of_a_thread_is_not_ended(notebook):
    notebook.run(
        "import threading, watcherml\ndone = threading.Event()\nhold = []\n"
        "def work():\n    with watcherml.init('thread') as run:\n        hold.append(run)\n        done.wait(20)\n"
        "thread = threading.Thread(target=work)\nthread.start()\nwhile not hold:\n    done.wait(0.01)"
    )
    notebook.run(INIT)
    assert notebook["hold"][0].status == "running"
    notebook.run("done.set()\nthread.join()")
    assert notebook["hold"][0].status == "success"


# -- written behind the cell ------------------------------------------------------------------------------------------


def test_cells_are_written_behind_in_order_and_a_magic_sees_them_all(notebook):
    notebook.run(INIT)
    session = Session.of(notebook.shell)
    for number in range(40):
        notebook.shell.run_cell(f"x = {number}", store_history=True)
    assert "42 cells" in notebook.run("%watcher status").value.text() or session.flush()
    sources = [row["source"] for row in rows(notebook)]
    assert [source for source in sources if source.startswith("x = ")] == [f"x = {number}" for number in range(40)]


def test_a_store_that_breaks_later_is_said_once_and_loses_no_cell(notebook, tmp_path):
    notebook.run(INIT)
    notebook["run"].finish()
    database = tmp_path / ".watcherml" / "watcherml.db"
    kept = database.rename(tmp_path / "kept.db")
    database.write_bytes(b"something else" * 100)
    for number in range(3):
        assert notebook.run(f"y = {number}").error is None
    assert len(Session.of(notebook.shell).problems) == 1
    database.unlink()
    kept.rename(database)
    notebook.run(INIT)
    assert [row["source"] for row in rows(notebook)][-4:] == ["y = 0", "y = 1", "y = 2", INIT]


def test_a_session_that_ends_has_written_every_cell(notebook):
    notebook.run(INIT)
    for number in range(20):
        notebook.shell.run_cell(f"z = {number}", store_history=True)
    notebook.shell.run_line_magic("unload_ext", "watcherml")
    assert rows(notebook)[-1]["source"] == "z = 19"


def test_a_forked_child_neither_writes_nor_waits(notebook):
    import os

    notebook.run(INIT)
    session = Session.of(notebook.shell)
    child = os.fork()
    if child == 0:
        session._behind.do(lambda: os._exit(9))
        os._exit(0 if session.flush() else 8)
    assert os.waitpid(child, 0)[1] == 0


def test_a_running_cell_has_its_seconds_so_far_and_its_source_without_secrets():
    import time

    secret = "hf_" + "abcdefghij" * 3
    history = cells.CellHistory("s")
    history.begin(f"token = {secret!r}\ninner()", None)
    time.sleep(0.02)
    (seen,) = history.evidence()
    assert seen["status"] == "running" and seen["seconds"] >= 0.02 and secret not in seen["source"]
    history.begin(f"token = {secret!r}", None)  # a part of the outer cell, whose secrets are gone already
    history.end(cells.Ending("ok"), 1, None)
    history.end(cells.Ending("ok"), 1, None)
    assert history.count == 1 and secret not in history.sources()[0][1]
