"""Opening a store: where it is, many processes at once, and files that are something else."""

import os
import sqlite3
import stat
import subprocess
import sys

import pytest

from watcherml.errors import NewerStore, NotAStore, NotFound, StoreError
from watcherml.store.database import locate
from watcherml.store.storage import Storage


def test_the_location_rule(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WATCHERML_DIR", str(tmp_path / "named"))
    assert locate(tmp_path / "given") == tmp_path / "given"
    assert locate() == tmp_path / "named"
    monkeypatch.delenv("WATCHERML_DIR")
    assert locate() == tmp_path / ".watcherml"
    os.mkdir(tmp_path / "later")
    monkeypatch.chdir(tmp_path / "later")
    assert locate() == tmp_path / "later" / ".watcherml"


def test_looking_creates_nothing(storage):
    assert not storage.exists
    with pytest.raises(StoreError, match="watcher init"):
        storage.get_run("nobody")
    storage.settle()
    assert not storage.path.exists()


def test_files_are_private_and_out_of_git(storage):
    storage.create()
    assert stat.S_IMODE(storage.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(storage.database.path.stat().st_mode) == 0o600
    assert (storage.path / ".gitignore").read_text() == "*\n"


def test_many_processes_open_a_fresh_store_at_once(tmp_path):
    code = (
        "import sys, watcherml\n"
        "for i in range(3):\n"
        "    run = watcherml.Run('p', {'i': i}, sys.argv[1], quiet=True); run.start()\n"
        "    run.log_metric('loss', i, step=i); run.finish()\n"
        "    assert not run.problems, run.problems\n"
    )
    children = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", code, str(tmp_path / "s")], stderr=subprocess.PIPE)
        for _ in range(6)
    ]
    for child in children:
        assert child.communicate()[1] == b"" and child.returncode == 0
    rows = Storage(tmp_path / "s").list_runs(limit=100)
    assert len(rows) == 18 and {row["status"] for row in rows} == {"success"}


def foreign(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE other (x)")
    connection.commit()
    connection.close()


def newer(path):
    Storage(path.parent).create()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


@pytest.mark.parametrize(
    ("make", "error", "word"),
    [
        (foreign, NotAStore, "application id"),
        (
            lambda path: path.write_bytes(b"not a database at all, but long enough to be read" * 50),
            NotAStore,
            "database",
        ),
        (newer, NewerStore, "schema 99"),
    ],
)
def test_other_files_are_refused_and_left_alone(tmp_path, make, error, word):
    path = tmp_path / "watcherml.db"
    make(path)
    before = path.read_bytes()
    storage = Storage(tmp_path)
    with pytest.raises(error, match=word):
        storage.list_runs()
    with pytest.raises(error, match=word):
        storage.create()
    assert path.read_bytes() == before


def test_unknown_ids_are_not_found(storage):
    storage.create()
    for call in (storage.get_run, storage.get_capsule, storage.get_metrics, storage.audit.campaign):
        with pytest.raises(NotFound) as refused:
            call("../../etc/passwd")
        assert refused.value.exit_code == 3


def test_what_is_on_record_cannot_change(storage):
    storage.audit.put_record("sha256:" + "1" * 64, "recovery-plan", "{}", 1.0)
    for statement in ("UPDATE records SET document = 'x'", "DELETE FROM records"):
        with pytest.raises(StoreError, match="append-only"):
            with storage.database.writing() as connection:
                connection.execute(statement)
    assert storage.audit.record("sha256:" + "1" * 64, "recovery-plan") == "{}"
    assert not storage.audit.is_on_record("sha256:" + "1" * 64, "recovery-verdict")


@pytest.mark.parametrize("table", ["verdicts", "trials", "trial_ends", "events"])
def test_the_audit_trail_has_no_updates(storage, failed_run, requirements, table):
    import watcherml

    watcherml.recover_from_oom(failed_run(), "ent:constant", requirements, storage=storage)
    column = {"verdicts": "status", "trials": "role", "trial_ends": "outcome", "events": "body"}[table]
    with pytest.raises(StoreError, match="append-only"):
        with storage.database.writing() as connection:
            connection.execute(f"UPDATE {table} SET {column} = 'verified'")


def test_a_failing_block_leaves_nothing_half_written(storage):
    with pytest.raises(ZeroDivisionError):
        with storage.database.writing() as connection:
            connection.execute("INSERT INTO blobs VALUES ('a', 'b', x'00')")
            1 / 0  # noqa: B018
    with pytest.raises(NotFound):
        storage.evidence.blob("a")
