"""A whole store in one ZIP, taken while a process logs into it, that opens at home."""

import os
import sqlite3
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import archive_case
import places
import pytest

import watcherml
from watcherml.api.archive import pack_store
from watcherml.api.result import RecoveryResult
from watcherml.errors import InvalidValue, StoreError
from watcherml.store.archive import Archive
from watcherml.store.archive_write import irregularities
from watcherml.store.storage import Storage

# Logs as fast as it can, and says how many points have been acknowledged when it is asked.
TRAINER = """
import sys, threading, watcherml
run = watcherml.Run("p", {}, sys.argv[1], run_id="live", quiet=True).start()
count, asked = 0, threading.Event()
def listen():
    for line in sys.stdin:
        before = count
        print(before, flush=True)
        if line.strip() == "end":
            break
    asked.set()
threading.Thread(target=listen, daemon=True).start()
while not asked.is_set():
    run.log_metric("loss", float(count), count)
    count += 1
    if count % 500 == 0:
        run.storage.runs.add_artifact("live", f"a{count}", 1, "x", 1.0)
run.finish()
"""


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    return archive_case.Case(tmp_path_factory.mktemp("pack"))


def unzipped(path, folder):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        archive.extractall(folder)
    return folder


def files_of(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_pack_holds_the_store_without_journals_and_locks(case, tmp_path):
    written = pack_store(tmp_path / "p.zip", storage=case.storage)
    home = unzipped(written.path, tmp_path / "home")
    there, here = files_of(home), files_of(case.storage.path)
    kept = {name for name in here if name.startswith(("artifacts/", "trials/")) and not name.endswith("/lock")}
    assert there == kept | {"watcherml.db", "manifest.json"} and kept < here
    assert {"request.json", "exit.json", "stdout.log"} <= {name.rsplit("/", 1)[-1] for name in there}
    for name in there - {"watcherml.db", "manifest.json"}:
        assert (home / name).read_bytes() == (case.storage.path / name).read_bytes()
    with (tmp_path / "p.zip").open("rb") as stream:
        archive = Archive(stream)
        assert archive.check() == [] and irregularities(stream, archive) == []
    assert stat.S_IMODE((tmp_path / "p.zip").stat().st_mode) == 0o600
    assert sorted(os.listdir(tmp_path)) == ["home", "p.zip"]


def test_a_pack_is_the_store_itself_with_its_record(case, tmp_path):
    before = archive_case.dumped(case.storage)
    home = Storage(unzipped(pack_store(tmp_path / "p.zip", storage=case.storage).path, tmp_path / "home"))
    assert archive_case.dumped(home) == before
    # The store itself has one line more: that it made this pack.
    lines = archive_case.dumped(case.storage).splitlines()
    (added,) = [line for line in lines if line not in before.splitlines()]
    assert "'store-pack'" in added and [line for line in lines if line != added] == before.splitlines()
    assert RecoveryResult.of_campaign("first", home).verified
    archive_case.sound(home)
    assert home.get_metrics(case.whole)[0] == case.storage.get_metrics(case.whole)[0]


@pytest.mark.parametrize(("plain", "packs"), [("", 3), ("1", 2), pytest.param("", 20, marks=pytest.mark.long)])
def test_a_live_store_is_packed_whole(tmp_path, plain, packs):
    store = Storage(tmp_path / "live")
    environment = {**os.environ, "WATCHERML_PLAIN_IO": plain}
    process = archive_case.child(TRAINER, store.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    with process:

        def acknowledged(word="more"):
            process.stdin.write(word + "\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        while acknowledged() < 2_000:
            pass
        for number in range(packs):
            known = acknowledged()
            written = pack_store(tmp_path / f"{number}.zip", storage=store)
            home = Storage(unzipped(written.path, tmp_path / f"home-{number}"))
            archive_case.sound(home)
            values = [point["value"] for point in home.get_metrics("live")]
            assert values == [float(step) for step in range(len(values))]
            assert len(values) >= known > 0
            (row,) = home.list_runs()
            assert row["run_id"] == "live"
        acknowledged("end")
        assert process.wait(60) == 0


def at_home(folder, *words):
    done = subprocess.run([*places.bound_by_permissions(), sys.executable, "-m", "watcherml", "--data-dir", str(folder),
                           *words], capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("home", ["a plain folder", "a folder without permission", "read-only media"])
def test_an_unzipped_pack_opens_read_only(case, tmp_path, home):
    path = pack_store(tmp_path / "p.zip", storage=case.storage).path
    if home == "read-only media":
        with places.mounted(tmp_path / "media", "16m") as folder:
            unzipped(path, folder / "store")
            with places.read_only(folder):
                check_home(case, folder / "store")
        return
    folder = unzipped(path, tmp_path / "home")
    if home == "a folder without permission":
        for one in [*folder.rglob("*"), folder]:
            one.chmod(0o500 if one.is_dir() else 0o400)
    before = {name: (folder / name).stat().st_mtime_ns for name in files_of(folder)}
    check_home(case, folder)
    assert {name: (folder / name).stat().st_mtime_ns for name in files_of(folder)} == before
    for one in [folder, *folder.rglob("*")]:
        one.chmod(0o700)


def check_home(case, folder):
    assert case.whole in at_home(folder, "runs") and "first" in at_home(folder, "recoveries")
    assert "on record here" in at_home(folder, "verify", "first")
    assert "loss/train" in at_home(folder, "inspect", case.whole)


def test_a_read_only_store_is_packed_with_the_points_of_its_journals(tmp_path):
    code = (
        "import os, sys, watcherml\n"
        "run = watcherml.Run('p', {}, sys.argv[1], run_id='r', quiet=True).start()\n"
        "run.join_facts()\n"
        "for step in range(300): run.log_metric('loss', 1.0, step)\n"
        "os._exit(1)\n"
    )
    with places.mounted(tmp_path / "media", "16m") as media:
        process = archive_case.child(code, media / "store")
        process.wait(60)
        with places.read_only(media):
            written = pack_store(tmp_path / "p.zip", storage=media / "store")
    home = Storage(unzipped(written.path, tmp_path / "home"))
    assert len(home.get_metrics("r")) == 300
    archive_case.sound(home)


def test_links_and_half_written_files_stay_out(storage, tmp_path):
    storage.create()
    (tmp_path / "secret").write_text("secret")
    folder = storage.path / "trials" / "t"
    folder.mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / ".report.json.123.abc.tmp").write_text("half")
    os.mkfifo(folder / "pipe")
    (folder / "stdout.log").write_text("kept")
    assert set(pack_store(tmp_path / "p.zip", storage=storage).members) == {"watcherml.db", "trials/t/stdout.log"}


def test_what_cannot_be_packed_is_said_and_leaves_nothing(case, storage, tmp_path):
    with pytest.raises(StoreError, match="no WatcherML store"):
        pack_store(tmp_path / "p.zip", storage=storage)
    (tmp_path / "p.zip").write_text("mine")
    with pytest.raises(InvalidValue, match="--force"):
        pack_store(tmp_path / "p.zip", storage=case.storage)
    with pytest.raises(InvalidValue, match="--out"):
        pack_store(tmp_path / "no" / "p.zip", storage=case.storage)
    assert (tmp_path / "p.zip").read_text() == "mine" and os.listdir(tmp_path) == ["p.zip"]
    with places.mounted(tmp_path / "small", "64k") as folder:
        with pytest.raises(InvalidValue, match="--out"):
            pack_store(folder / "p.zip", storage=case.storage)
        assert os.listdir(folder) == []


def test_a_damaged_store_is_not_packed(tmp_path):
    storage = Storage(tmp_path / "s")
    archive_case.plain_run(storage, "r", points=5_000)
    with sqlite3.connect(storage.database.path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    data = bytearray(storage.database.path.read_bytes())
    at = len(data) - 3 * 4096
    data[at : at + 4096] = b"\xa5" * 4096
    Path(storage.database.path).write_bytes(data)
    with pytest.raises(StoreError):
        pack_store(tmp_path / "p.zip", storage=storage)
    assert not (tmp_path / "p.zip").exists() and os.listdir(tmp_path) == ["s"]


def test_points_keep_their_places_in_a_pack_of_a_store_that_has_lost_runs(storage, tmp_path):
    from watcherml.api.removal import carry_out, plan_deletion

    for name in ("a", "b", "c"):
        archive_case.plain_run(storage, name, points=1_000, value=ord(name))
    carry_out(plan_deletion("b", storage=storage), storage=storage)
    run = watcherml.Run("p", {}, storage, run_id="d", quiet=True).start()
    run.log_metric("loss", 5.0, 1)
    run.finish()
    home = Storage(unzipped(pack_store(tmp_path / "p.zip", storage=storage).path, tmp_path / "home"))
    for name in ("a", "c"):
        assert {point["value"] for point in home.get_metrics(name)} == {float(ord(name))}
        assert len(home.get_metrics(name)) == 1_000
    assert [point["value"] for point in home.get_metrics("d")] == [5.0]
