"""One damaged row is told on a page and takes away neither the page nor what is summed up of other rows."""

import shutil
import sqlite3

import pytest
from builders import FAILED_CONFIG, good_trials
from stored import record, recorded_plan, rename
from ui_store import fail
from ui_tools import Client

import watcherml
from watcherml import frames
from watcherml.api.archive import export_run, import_run
from watcherml.api.resolve import resolve
from watcherml.store.storage import Storage


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store with two failures of one project, both resolved, and an imported campaign; the ids of the failures."""
    folder = tmp_path_factory.mktemp("damaged")
    storage, other = Storage(folder / ".watcherml"), Storage(folder / "elsewhere")
    ids = [fail(storage, "vision", FloatingPointError("loss is nan")) for _ in range(2)]
    for one in ids:
        resolve(one, by="Ann", note="Halved the learning rate.", storage=storage)
    with watcherml.Run("vision", {}, storage, quiet=True):
        pass
    plan = recorded_plan(other, FAILED_CONFIG)
    record(other, "campaign-elsewhere", plan, rename(good_trials(plan), "campaign-elsewhere"))
    export_run(plan.source.run_id, folder / "run.zip", storage=other)
    import_run(folder / "run.zip", storage=storage)
    return storage.path, ids


@pytest.fixture
def damaged(made, tmp_path):
    """Return a call that puts a value into a column of a copy, and a client of it."""

    def change(table, column, value, where):
        folder = tmp_path / ".watcherml"
        shutil.copytree(made[0], folder)
        with sqlite3.connect(folder / "watcherml.db") as connection:
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,))
        connection.close()
        return Client(folder)

    return change


DAMAGED = {
    "class": ("capsules", "failure_class", b"\xff", "/memory", "failure_class: expected text"),
    "failed at": ("capsules", "created_at", "yesterday", "/memory", "created_at: expected seconds since 1970"),
    "resolved at": ("capsules", "resolved_at", b"\xff", "/memory", "at: expected seconds since 1970"),
    "resolved when": ("capsules", "resolved_at", "[]", "/memory", "at: expected seconds since 1970"),
    "note": ("capsules", "resolved_note", b"\xff", "/memory", "resolved_note: expected text"),
    "started": ("runs", "started_at", "yesterday", "/projects", "started_at: expected seconds since 1970"),
    "started never": ("runs", "started_at", float("inf"), "/projects", "started_at: expected seconds since 1970"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_row_is_told_and_hides_nothing_that_is_summed_up(name, made, damaged):
    table, column, value, page, told = DAMAGED[name]
    answer = damaged(table, column, value, f"run_id = '{made[1][0]}'").get(page)
    assert answer.status_code == 200
    assert made[1][0] in answer.text and told in answer.text  # the damaged one, by its id
    assert ("/runs?project=vision" if page == "/projects" else made[1][1]) in answer.text


@pytest.mark.parametrize(("column", "value"), [("document", "{broken"), ("document", b"\xff"), ("at", "yesterday")])
def test_a_damaged_import_takes_no_page_away(made, damaged, column, value):
    client = damaged("imports", column, value, "json_type(document, '$.value.verdict') = 'object'")
    for page in ("/campaigns", "/campaigns?project=demo", "/memory", "/"):
        answer = client.get(page)
        assert answer.status_code == 200
        assert page == "/" or "1 damaged row of this store is left out here" in answer.text
    assert client.get(f"/runs/{made[1][0]}").status_code == 200
    assert frames.campaigns(storage=client.storage) is not None
