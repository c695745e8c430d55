"""Damage that SQLite meets late or not at all: a schema or a text that is no UTF-8, a document that is no JSON."""

import sqlite3

import pytest
from builders import CONFIG

import watcherml
from watcherml.api.archive import pack_store
from watcherml.errors import DamagedRow, NotAStore
from watcherml.store.sound import DamagedRowWarning
from watcherml.store.storage import Storage


@pytest.fixture
def damaged(tmp_path):
    """Return a call that changes bytes of a store's file, and the store with one ended run in it."""
    folder = tmp_path / ".watcherml"
    with watcherml.Run("demo", CONFIG, folder, quiet=True) as run:
        pass
    with sqlite3.connect(folder / "watcherml.db") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()

    def damage(old, new):
        file = folder / "watcherml.db"
        before = file.read_bytes()
        assert old in before and len(old) == len(new)
        file.write_bytes(before.replace(old, new))
        return Storage(folder), run.run_id

    return damage


def test_a_schema_that_is_no_utf_8_is_told_as_damage(damaged):
    storage, run_id = damaged(b"CREATE TABLE runs", b"CREA\xffE TABLE runs")
    for call in (storage.list_runs, lambda: storage.get_run(run_id), storage.create):
        with pytest.raises(NotAStore) as caught:
            call()
        assert str(storage.database.path) in caught.value.message and caught.value.remedy


def test_a_document_that_is_no_json_names_its_table_row_and_column(damaged):
    storage, run_id = damaged(b'{"batch_size"', b'["batch_size"')
    with pytest.raises(DamagedRow, match=f"table runs, row {run_id}: config: expected a JSON object"):
        storage.get_run(run_id)
    with pytest.warns(DamagedRowWarning, match=f"table runs, row {run_id}: config"):
        assert storage.list_runs() == []


def test_a_damaged_schema_is_not_packed(damaged, tmp_path):
    storage, _ = damaged(b"CREATE INDEX", b"CREATE INDEZ")
    with pytest.raises(NotAStore):
        pack_store(tmp_path / "out.zip", storage=storage)
    assert not (tmp_path / "out.zip").exists() and not list(tmp_path.glob(".*.tmp"))
