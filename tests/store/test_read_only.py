"""A folder that nobody may write: everything recorded there is shown, also what was never folded in."""

import json
import os
import shutil
import signal
import subprocess
import sys

import old_store
import places
import pytest

from watcherml.errors import StoreError
from watcherml.store.storage import Storage

POINTS = 500
# A trainer that fails once, then is killed while its points lie in the journal and its last row in the log.
TRAINER = """
import os, signal, sqlite3, sys, watcherml
folder, how = sys.argv[1:3]
failed = watcherml.Run("p", {"lr": 0.1}, folder, run_id="failed", quiet=True)
try:
    with failed:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
except RuntimeError:
    pass
run = watcherml.Run("p", {"lr": 0.2}, folder, run_id="main", quiet=True).start()
run.join_facts()
for step in range(int(sys.argv[3])):
    run.log_metric("loss", float(step), step)
if how == "ended":
    run.finish()
    sys.exit()
if how in ("log", "journal"):
    connection = sqlite3.connect(f"{folder}/watcherml.db", isolation_level=None)
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("BEGIN")
    connection.execute("UPDATE runs SET title = 'last words'")
    if how == "log":
        connection.execute("COMMIT")
    else:  # more pages than the cache holds: some are in the database already, to be rolled back
        connection.execute("CREATE TABLE filler (x)")
        connection.executemany("INSERT INTO filler VALUES (?)", [("x" * 3000,)] * 200)
os.kill(os.getpid(), signal.SIGKILL)
"""
READER = """
import json, sys
from watcherml.store.storage import Storage
from watcherml.cli.main import main
folder = sys.argv[1]
storage = Storage(folder)
storage.settle()
print(json.dumps({
    "runs": {row["run_id"]: row["title"] for row in storage.list_runs()},
    "points": [point["value"] for point in storage.get_metrics(sys.argv[2])],
    "failures": [row["run_id"] for row in storage.evidence.failures()],
}))
for words in (["runs"], ["failures"], ["inspect", sys.argv[2]], ["recoveries"]):
    assert main(["--data-dir", folder, *words]) == 0, words
"""


def record(folder, how, plain=False):
    environment = {**os.environ, "WATCHERML_PLAIN_IO": "1"} if plain else dict(os.environ)
    done = subprocess.run([sys.executable, "-c", TRAINER, folder, how, str(POINTS)], env=environment, check=False,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == (0 if how == "ended" else -signal.SIGKILL), done.stderr


def read(folder, run, before=()):
    done = subprocess.run([*before, sys.executable, "-W", "error", "-c", READER, folder, run], capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[0])


CASES = {
    "ended": lambda folder: record(folder, "ended"),
    "points in the journal": lambda folder: record(folder, "killed"),
    "rows in the log": lambda folder: record(folder, "log"),
    "plain, points in the journal": lambda folder: record(folder, "killed", plain=True),
    "plain, a journal to roll back": lambda folder: record(folder, "journal", plain=True),
}


def check(found, case):
    assert found["points"] == [float(step) for step in range(POINTS)]
    assert found["failures"] == ["failed"]
    title = "last words" if case == "rows in the log" else None
    assert found["runs"] == {"main": title, "failed": title}


@pytest.mark.parametrize("case", CASES)
def test_a_read_only_mount_is_read_whole_and_left_alone(tmp_path, case):
    with places.mounted(tmp_path / "disk", "32m") as disk:
        CASES[case](disk / "s")
        before = old_store.tree(disk)
        with places.read_only(disk):
            check(read(disk / "s", "main"), case)
            with pytest.raises(StoreError, match="read-only"):
                Storage(disk / "s").create()
        assert old_store.tree(disk) == before


@pytest.mark.parametrize("case", CASES)
def test_a_folder_without_the_right_to_write_is_read_whole(tmp_path, case):
    before = places.bound_by_permissions()
    folder = tmp_path / "s"
    CASES[case](folder)
    for one in [*folder.rglob("*"), folder]:
        one.chmod(0o500 if one.is_dir() else 0o400)
    files = old_store.tree(folder)
    try:
        check(read(folder, "main", before), case)
        assert old_store.tree(folder) == files
    finally:
        for one in [folder, *folder.rglob("*")]:
            one.chmod(0o700)


@pytest.mark.parametrize("wal", [True, False])
def test_an_old_schema_on_a_read_only_mount_is_read(tmp_path, wal):
    with places.mounted(tmp_path / "disk", "8m") as disk:
        old_store.make(disk / "s", wal)
        before = old_store.tree(disk)
        with places.read_only(disk):
            storage = Storage(disk / "s")
            assert len(storage.list_runs()) == 2 and len(storage.get_metrics("one")) == 5
        assert old_store.tree(disk) == before


def test_a_store_of_0_1_on_a_read_only_mount_is_read(tmp_path):
    with places.mounted(tmp_path / "disk", "8m") as disk:
        shutil.copytree(old_store.DATA / "store-0.1", disk / "s")
        with places.read_only(disk):
            assert len(Storage(disk / "s").list_runs()) == 5


def test_once_it_may_be_written_the_same_points_are_folded_in(tmp_path):
    record(tmp_path / "s", "killed")
    storage = Storage(tmp_path / "s")
    assert len(storage.get_metrics("main")) == POINTS
    storage.settle()
    assert storage.get_run("main")["status"] == "killed"
    assert len(storage.get_metrics("main")) == POINTS and not list((tmp_path / "s" / "spool").iterdir())


def test_a_killed_writers_journal_is_rolled_back_for_readers(tmp_path, monkeypatch):
    monkeypatch.setenv("WATCHERML_PLAIN_IO", "1")
    record(tmp_path / "s", "journal", plain=True)
    assert (tmp_path / "s" / "watcherml.db-journal").stat().st_size
    check(read(tmp_path / "s", "main"), "")
    assert not (tmp_path / "s" / "watcherml.db-journal").exists()


def test_a_folder_that_may_not_be_looked_into_says_so(tmp_path):
    before = places.bound_by_permissions()
    if before:  # root may look everywhere
        before = [*before[:2], "-dac_override,-dac_read_search", before[3], "-dac_override,-dac_read_search"]
    Storage(tmp_path / "s").create()
    (tmp_path / "s").chmod(0)
    try:
        words = ["-m", "watcherml", "--data-dir", tmp_path / "s", "inspect", "x"]
        done = subprocess.run([*before, sys.executable, *words],
                              capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode != 0 and "may not look into" in done.stderr
    finally:
        (tmp_path / "s").chmod(0o700)
