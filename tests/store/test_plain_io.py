"""File systems without shared memory: which ones they are, and what is done differently there."""

import os
import sqlite3
import subprocess
import sys

import places
import pytest

from watcherml.api import doctor
from watcherml.store import filesystem
from watcherml.store.filesystem import Place, find, parse_mountinfo
from watcherml.store.spool import AppendSpool, MappedSpool
from watcherml.store.storage import Storage

# In the format of proc(5): a root, a home on NFS with a local scratch inside, Colab's Drive, and a name with a blank.
MOUNTS = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
40 27 0:40 / /home rw,relatime shared:7 master:2 - nfs4 server:/export/home rw,vers=4.2
41 40 8:17 / /home/anna/scratch rw,relatime - xfs /dev/sdb1 rw
42 27 0:42 / /content/drive rw,nosuid - fuse drive rw,user_id=0,group_id=0
43 27 0:43 / /mnt/bucket rw - fuse.gcsfuse bucket rw
44 27 0:44 / /mnt/ssh rw - fuse.sshfs host: rw
45 27 0:45 / /mnt/win\040share rw - cifs //server/share rw
46 27 0:46 / /mnt/host rw - 9p host rw
47 27 0:47 / /tmp rw - tmpfs tmpfs rw
48 47 0:48 / /tmp rw - fuse.later later rw
49 27 0:49 /overlay /kaggle/working rw - overlay overlay rw
garbage without fields
50 27 0:50 / /half
"""


@pytest.mark.parametrize(
    ("path", "mount", "kind", "remote"),
    [
        ("/root/project/.watcherml", "/", "ext4", False),
        ("/home/anna/project", "/home", "nfs4", True),
        ("/home", "/home", "nfs4", True),
        ("/homes/anna", "/", "ext4", False),
        ("/home/anna/scratch/x", "/home/anna/scratch", "xfs", False),
        ("/content/drive/MyDrive/run", "/content/drive", "fuse", True),
        ("/content/drives", "/", "ext4", False),
        ("/mnt/bucket/a", "/mnt/bucket", "fuse.gcsfuse", True),
        ("/mnt/ssh", "/mnt/ssh", "fuse.sshfs", True),
        ("/mnt/win share/a", "/mnt/win share", "cifs", True),
        ("/mnt/host/a", "/mnt/host", "9p", True),
        ("/tmp/a", "/tmp", "fuse.later", True),
        ("/kaggle/working", "/kaggle/working", "overlay", False),
    ],
)
def test_the_longest_mount_point_decides(path, mount, kind, remote):
    found = find(parse_mountinfo(MOUNTS), path)
    assert (found, found.remote) == (Place(mount, kind), remote)


def test_what_the_system_does_not_tell_counts_as_local(tmp_path, monkeypatch):
    monkeypatch.setattr(filesystem, "MOUNTS", tmp_path / "nothing")
    assert filesystem.place_of(tmp_path) == filesystem.UNKNOWN and not filesystem.UNKNOWN.remote
    assert find([], "/a") == filesystem.UNKNOWN


def test_a_real_mount_is_found_and_links_are_followed(tmp_path):
    with places.mounted(tmp_path / "disk", "1m") as disk:
        (tmp_path / "link").symlink_to(disk)
        assert filesystem.place_of(tmp_path / "link" / "not" / "there") == Place(str(disk), "tmpfs")


@pytest.fixture
def remote(tmp_path, monkeypatch):
    """A table in which the test's folder lies on NFS."""
    table = tmp_path / "mountinfo"
    table.write_text(f"27 1 254:0 / / rw - ext4 /dev/vda rw\n40 27 0:40 / {tmp_path}/s rw - nfs4 server:/x rw\n")
    monkeypatch.setattr(filesystem, "MOUNTS", table)
    monkeypatch.delenv("WATCHERML_PLAIN_IO", raising=False)
    return tmp_path / "s"


def mode_of(folder):
    connection = sqlite3.connect(folder / "watcherml.db")
    try:
        return connection.execute("PRAGMA journal_mode").fetchone()[0]
    finally:
        connection.close()


def log(storage, points=100):
    import watcherml

    with watcherml.Run("p", {}, storage, quiet=True) as run:
        for step in range(points):
            run.log_metric("loss", float(step), step)
        spool = run._spool
    assert not run.problems
    assert [point["value"] for point in storage.get_metrics(run.run_id)] == [float(step) for step in range(points)]
    return spool


def test_on_a_network_file_system_nothing_is_mapped_or_shared(remote):
    storage = Storage(remote)
    assert isinstance(log(storage), AppendSpool)
    assert mode_of(remote) == "delete"
    with storage.database.writing() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone()[0] == 2
    assert sorted(one.name for one in remote.iterdir()) == [".gitignore", "spool", "watcherml.db"]
    told = doctor._location(storage)
    assert told.status == "ok" and f"{remote} is a file system of type nfs4" in told.sentence


def test_one_variable_forces_the_same_anywhere(tmp_path, monkeypatch):
    monkeypatch.setenv("WATCHERML_PLAIN_IO", "1")
    storage = Storage(tmp_path / "s")
    assert isinstance(log(storage), AppendSpool) and mode_of(tmp_path / "s") == "delete"
    assert "WATCHERML_PLAIN_IO=1 is set" in doctor._location(storage).sentence


def test_a_local_folder_has_a_write_ahead_log_and_a_mapped_journal(tmp_path, monkeypatch):
    monkeypatch.delenv("WATCHERML_PLAIN_IO", raising=False)
    storage = Storage(tmp_path / "s")
    assert isinstance(log(storage), MappedSpool) and mode_of(tmp_path / "s") == "wal"
    assert "journal mode wal" in doctor._location(storage).sentence


def test_where_shared_memory_cannot_be_had_the_rollback_journal_takes_over(tmp_path, monkeypatch):
    """SQLite refuses to open its shared memory through a link, as it fails where a file system has none."""
    monkeypatch.delenv("WATCHERML_PLAIN_IO", raising=False)
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "watcherml.db-shm").symlink_to(tmp_path / "nowhere" / "x")
    storage = Storage(tmp_path / "s")
    log(storage)
    assert mode_of(tmp_path / "s") == "delete" and "write-ahead log" in storage.database.why_plain
    assert "SQLite cannot use its write-ahead log here" in doctor._location(storage).sentence
    assert Storage(tmp_path / "s").list_runs()


@pytest.mark.parametrize("shared_memory", [True, False])
def test_a_store_with_a_log_that_comes_to_a_network_is_moved_over(tmp_path, monkeypatch, shared_memory):
    monkeypatch.delenv("WATCHERML_PLAIN_IO", raising=False)
    folder = tmp_path / "s"
    log(Storage(folder))
    assert mode_of(folder) == "wal"
    if not shared_memory:
        (folder / "watcherml.db-shm").symlink_to(tmp_path / "nowhere" / "x")
    monkeypatch.setenv("WATCHERML_PLAIN_IO", "1")
    assert len(Storage(folder).list_runs()) == 1
    log(Storage(folder))
    assert mode_of(folder) == "delete" and len(Storage(folder).list_runs()) == 2


def test_a_store_that_comes_back_to_a_local_disk_gets_its_log_again(tmp_path, monkeypatch):
    monkeypatch.setenv("WATCHERML_PLAIN_IO", "1")
    log(Storage(tmp_path / "s"))
    monkeypatch.delenv("WATCHERML_PLAIN_IO")
    log(Storage(tmp_path / "s"))
    assert mode_of(tmp_path / "s") == "wal"


def test_others_who_hold_the_store_open_keep_their_mode(tmp_path, monkeypatch):
    """Two processes that see the file system differently must not fight over the journal mode."""
    monkeypatch.delenv("WATCHERML_PLAIN_IO", raising=False)
    storage = Storage(tmp_path / "s")
    storage.create()
    reader = sqlite3.connect(tmp_path / "s" / "watcherml.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT COUNT(*) FROM runs").fetchone()
    monkeypatch.setenv("WATCHERML_PLAIN_IO", "1")
    log(Storage(tmp_path / "s"))
    assert "still wal" in doctor._location(Storage(tmp_path / "s")).sentence
    reader.close()
    assert len(storage.list_runs()) == 1


def test_doctor_names_the_mode_in_its_output(tmp_path):
    environment = {**os.environ, "WATCHERML_PLAIN_IO": "1"}
    for words in (["init"], ["doctor"]):
        done = subprocess.run([sys.executable, "-m", "watcherml", "--data-dir", tmp_path / "s", *words],
                              env=environment, capture_output=True, text=True, check=True)  # fmt: skip
    flat = " ".join(done.stdout.split())
    assert "in the plain mode, because WATCHERML_PLAIN_IO=1 is set: journal mode delete" in flat
