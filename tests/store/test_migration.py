"""From schema 1 to 2: everything stays, a crash changes nothing, and reading alone writes nothing."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys

import old_store
import pytest

from watcherml.errors import NewerStore
from watcherml.store.storage import Storage


def read(storage, run):
    return [(p["name"], p["step"], repr(p["value"])) for p in storage.get_metrics(run)]


def move(folder):
    storage = Storage(folder)
    storage.create()
    return storage


def raw(path, text):
    connection = sqlite3.connect(path)
    try:
        return connection.execute(text).fetchall()
    finally:
        connection.close()


def shape(path):
    """Columns of all tables and views, indexes and triggers, without the words of comments."""
    found = {}
    for kind, name, table in raw(path, "SELECT type, name, tbl_name FROM sqlite_master ORDER BY name"):
        columns = raw(path, f'PRAGMA table_info("{name}")') if kind in ("table", "view") else []
        keys = raw(path, f'PRAGMA foreign_key_list("{name}")') if kind == "table" else []
        parts = raw(path, f'PRAGMA index_info("{name}")') if kind == "index" else []
        found[name] = (kind, table, columns, keys, parts)
    texts = raw(path, "SELECT name, sql FROM sqlite_master WHERE type IN ('view', 'trigger') ORDER BY name")
    return found, texts


def test_a_migrated_store_has_the_shape_of_a_fresh_one(tmp_path):
    path = old_store.make(tmp_path / "old")
    move(tmp_path / "old")
    move(tmp_path / "new")
    assert shape(path) == shape(tmp_path / "new" / "watcherml.db")
    assert raw(path, "PRAGMA user_version") == raw(tmp_path / "new" / "watcherml.db", "PRAGMA user_version")
    assert raw(path, "PRAGMA integrity_check") == [("ok",)] and not raw(path, "PRAGMA foreign_key_check")


def test_the_limits_of_the_new_columns_hold_in_a_migrated_store(tmp_path):
    path = old_store.make(tmp_path)
    move(tmp_path)
    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        connection.execute("UPDATE runs SET origin = 'elsewhere'")
    connection.execute("UPDATE artifacts SET sha256 = NULL")
    connection.close()


@pytest.mark.parametrize("wal", [True, False])
def test_everything_is_there_after_the_migration(tmp_path, wal):
    path = old_store.make(tmp_path, wal)
    tables = ("samples", "blobs", "capsules", "cells", "records", "campaigns", "events", "trials", "trial_ends",
              "verdicts", "spools", "artifacts")  # fmt: skip
    columns = {name: ", ".join(row[1] for row in raw(path, f"PRAGMA table_info({name})")) for name in (*tables, "runs")}
    before = {name: raw(path, f"SELECT {columns[name]} FROM {name}") for name in columns}
    views = {name: raw(path, f"SELECT * FROM {name}") for name in ("campaign_summary", "trial_summary", "cell_history")}
    storage = move(tmp_path)
    for name, rows in before.items():
        assert raw(path, f"SELECT {columns[name]} FROM {name}") == rows, name
    for name, rows in views.items():
        assert [row[: len(rows[0])] for row in raw(path, f"SELECT * FROM {name}")] == rows, name
    assert {row["origin"] for row in storage.list_runs()} == {"here"}
    assert {run: read(storage, run) for run in ("one", "two")} == {
        run: old_store.points_of(run) for run in ("one", "two")
    }
    assert [p["at"] for p in storage.get_metrics("two")] == [101.0, 104.0, 106.0]


def test_points_logged_after_the_migration_follow_the_old_ones(tmp_path):
    from watcherml.store.journal import open_spool

    old_store.make(tmp_path)
    storage = move(tmp_path)
    spool = open_spool(storage.runs.spool_folder, "one", plain=False)
    spool.put(spool.key_of("loss"), 9.0, 3, 200.0)
    assert read(storage, "one") == [*old_store.points_of("one"), ("loss", 3, "9.0")]
    assert read(storage, "two") == old_store.points_of("two")


def test_a_journal_of_schema_1_is_folded_from_where_it_was_left(tmp_path):
    old_store.make(tmp_path)
    (tmp_path / "spool").mkdir()
    taken = '["loss", 1.0, 1, 1.0]'.ljust(39) + "\n"
    (tmp_path / "spool" / "one.7.jsonl").write_text(taken + '["loss", 7.0, 3, 300.0]\n["loss", NaN, 4, 301.0]\n')
    expected = [*old_store.points_of("one"), ("loss", 3, "7.0"), ("loss", 4, "nan")]
    assert read(Storage(tmp_path), "one") == expected
    assert read(move(tmp_path), "one") == expected


def test_reading_an_old_store_writes_nothing(tmp_path):
    old_store.make(tmp_path / "s")
    before = old_store.tree(tmp_path / "s")
    storage = Storage(tmp_path / "s")
    storage.settle()
    assert len(storage.list_runs()) == 2 and read(storage, "one") == old_store.points_of("one")
    assert storage.get_capsule("two") == {"run_id": "two"}
    assert storage.audit.campaign("camp")["status"] == "not_recovered"
    assert not storage.writable and storage.exists
    assert old_store.tree(tmp_path / "s") == before


def test_a_log_that_was_never_folded_in_is_read_too(tmp_path):
    """A killed writer leaves its last transactions in the log beside the database."""
    (tmp_path / "s").mkdir()
    code = (
        "import os, signal, sqlite3, sys, old_store, pathlib\n"
        "p = old_store.make(pathlib.Path(sys.argv[1]))\n"
        "c = sqlite3.connect(p, isolation_level=None)\n"
        "c.execute(\"UPDATE runs SET project = 'late'\")\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "s"], cwd=os.path.dirname(__file__), check=False)
    assert done.returncode == -signal.SIGKILL and (tmp_path / "s" / "watcherml.db-wal").stat().st_size
    before = old_store.tree(tmp_path / "s")
    assert {row["project"] for row in Storage(tmp_path / "s").list_runs()} == {"late"}
    assert old_store.tree(tmp_path / "s") == before
    assert {row["project"] for row in move(tmp_path / "s").list_runs()} == {"late"}


def test_a_copy_follows_its_original(tmp_path):
    path = old_store.make(tmp_path)
    storage = Storage(tmp_path)
    assert {row["project"] for row in storage.list_runs()} == {"p"}
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE runs SET project = 'q'")
    assert {row["project"] for row in storage.list_runs()} == {"q"}
    connection.close()


KILL = """
import os, signal, sys
from pathlib import Path
from watcherml.store.connect import begin_immediate, open_file
from watcherml.store.migrate import ensure_schema
path = Path(sys.argv[1])
connection = open_file(path, "mode=rw")
connection.execute("PRAGMA foreign_keys = ON")
left = int(sys.argv[2])
def step():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return 0
connection.set_progress_handler(step, 50)
ensure_schema(connection, path, begin_immediate)
connection.set_progress_handler(None, 0)
print("done")
"""


@pytest.mark.parametrize("wal", [True, False])
def test_a_process_killed_in_the_middle_leaves_schema_1_whole(tmp_path, wal):
    old_store.make(tmp_path / "whole", wal)
    killed = 0
    for moment in (1, 5, 15, 30, 45, 60, 75, 90):
        folder = tmp_path / f"k{moment}"
        shutil.copytree(tmp_path / "whole", folder)
        done = subprocess.run([sys.executable, "-c", KILL, folder / "watcherml.db", str(moment)], capture_output=True,
                              text=True, check=False)  # fmt: skip
        if done.returncode == 0:
            assert done.stdout == "done\n"
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        killed += 1
        assert raw(folder / "watcherml.db", "PRAGMA user_version") == [(1,)]
        assert raw(folder / "watcherml.db", "SELECT COUNT(*) FROM metrics WHERE run_id = 'one'") == [(5,)]
        storage = move(folder)
        assert read(storage, "one") == old_store.points_of("one")
    assert killed >= 3


def test_eight_processes_open_an_old_store_at_once(tmp_path):
    old_store.make(tmp_path)
    code = (
        "import sys, time\n"
        "from watcherml.store.storage import Storage\n"
        "storage = Storage(sys.argv[1])\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "storage.create()\n"
        "assert len(storage.get_metrics('one')) == 5 and len(storage.list_runs()) == 2\n"
    )
    children = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", code, tmp_path], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(8)
    ]  # fmt: skip
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        assert child.communicate(timeout=60)[1] == "" and child.returncode == 0
    assert read(Storage(tmp_path), "one") == old_store.points_of("one")
    assert raw(tmp_path / "watcherml.db", "SELECT COUNT(*) FROM metrics") == [(8,)]


def test_a_newer_schema_is_refused_with_the_remedy(tmp_path):
    storage = move(tmp_path)
    connection = sqlite3.connect(storage.database.path)
    connection.execute("PRAGMA user_version = 3")
    connection.close()
    before = storage.database.path.read_bytes()
    for act in (lambda: Storage(tmp_path).list_runs(), lambda: Storage(tmp_path).create()):
        with pytest.raises(NewerStore, match=r"schema 3.*that version or a later one"):
            act()
    assert storage.database.path.read_bytes() == before
