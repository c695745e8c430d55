"""Opening a store: where it is, many processes at once, and files that are something else."""

import os
import sqlite3
import stat
import subprocess
import sys
import threading

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


def marked(path):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA application_id = 7")
    connection.close()


def foreign_with_a_log(path):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    foreign(path)


def ours(path):
    storage = Storage(path.parent)
    storage.create()
    return storage


def cut(path, size):
    ours(path)
    path.write_bytes(path.read_bytes()[:size])


def scrambled(path):
    ours(path)
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))


REFUSED = {
    "another program's database": (foreign, NotAStore, "application id.*tables other"),
    "another program's database with a log": (foreign_with_a_log, NotAStore, "tables other"),
    "another program's mark on an empty database": (marked, NotAStore, "0x7 and no table"),
    "a text file": (lambda path: path.write_text("epoch,loss\n1,0.5\n" * 50), NotAStore, "a text file.*'epoch,loss"),
    "a short text file": (lambda path: path.write_text("hello"), NotAStore, "a text file .5 bytes"),
    "a picture": (lambda path: path.write_bytes(b"\x89PNG\r\n" + bytes(3000)), NotAStore, "another format"),
    "cut off within its header": (lambda path: cut(path, 60), NotAStore, "damaged or cut off"),
    "cut off within its first page": (lambda path: cut(path, 2_000), NotAStore, "damaged or cut off"),
    "cut off at half": (lambda path: cut(path, 20_480), NotAStore, "damaged or cut off"),
    "overwritten after its first page": (scrambled, NotAStore, "malformed"),
    "a later version's": (newer, NewerStore, "schema 99.*that version or a later one"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_files_are_refused_with_what_they_are_and_left_alone(tmp_path, case):
    make, error, word = REFUSED[case]
    path = tmp_path / "watcherml.db"
    make(path)
    before = path.read_bytes()
    for act in (lambda: Storage(tmp_path).list_runs(), lambda: Storage(tmp_path).create()):
        with pytest.raises(error, match=word) as refused:
            act()
        assert refused.value.remedy and refused.value.exit_code == 1
    assert path.read_bytes() == before


def test_a_folder_in_its_place_is_refused(tmp_path):
    (tmp_path / "watcherml.db").mkdir()
    for act in (lambda: Storage(tmp_path).list_runs(), lambda: Storage(tmp_path).create()):
        with pytest.raises(NotAStore, match=r"a folder.*Move it away"):
            act()


def test_an_empty_file_is_told_from_a_store_and_may_become_one(tmp_path):
    """A full disk leaves one behind, and so does a process that dies between making the file and its schema."""
    (tmp_path / "watcherml.db").touch()
    with pytest.raises(StoreError, match=r"an empty file.*restore it from a copy"):
        Storage(tmp_path).list_runs()
    Storage(tmp_path).create()
    assert Storage(tmp_path).list_runs() == []


def test_a_reader_waits_for_the_process_that_makes_the_store(tmp_path):
    path = tmp_path / "watcherml.db"
    path.touch()
    maker = threading.Timer(0.3, Storage(tmp_path).create)
    maker.start()
    assert Storage(tmp_path).list_runs() == []
    maker.join()


def test_reading_cannot_write(storage):
    storage.create()
    with pytest.raises(StoreError, match="readonly"):
        with storage.database.reading() as connection:
            connection.execute("DELETE FROM runs")


def test_damage_shows_up_as_damage_and_not_as_a_traceback(tmp_path, capsys):
    from watcherml.cli.main import main

    cut(tmp_path / "watcherml.db", 20_480)
    assert main(["--data-dir", str(tmp_path), "runs"]) == 1
    told = capsys.readouterr().err
    assert "cannot be read as a store" in told and "restore it from a copy" in told and "Traceback" not in told


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


def test_an_empty_gitignore_of_a_project_is_left_as_it_is(tmp_path):
    (tmp_path / ".gitignore").touch()
    (tmp_path / "train.py").touch()
    Storage(tmp_path).create()
    assert (tmp_path / ".gitignore").read_text() == ""
