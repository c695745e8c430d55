"""An exported run: what is in it, that its bytes depend on it alone, and that any changed byte is found."""

import hashlib
import io
import json
import math
import os
import shutil
import stat
import subprocess
import zipfile
from pathlib import Path

import archive_case
import pytest

import watcherml
from watcherml.api.archive import export_run, open_export
from watcherml.errors import InvalidValue, NotFound, WatcherError
from watcherml.store import archive_write, portable
from watcherml.store.archive import Archive
from watcherml.store.storage import Storage


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    return archive_case.Case(tmp_path_factory.mktemp("export"))


def members(path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_an_export_holds_what_it_says(case):
    found = members(case.whole_zip)
    assert list(found) == [
        f"blobs/{hashlib.sha256(b'other bytes').hexdigest()}", "config.json", "environment.json", "patch.diff",
        "requirements.txt", "run.json", "manifest.json",
    ]  # fmt: skip
    assert list(members(case.failed_zip)) == [
        "campaigns/first/recovery-result.json", "capsule.json", "config.json", "environment.json", "requirements.txt",
        "run.json", "manifest.json",
    ]  # fmt: skip
    for path in (case.whole_zip, case.failed_zip):
        found = members(path)
        listed = json.loads(found.pop("manifest.json"))["files"]
        assert listed == {name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
                          for name, data in found.items()}  # fmt: skip


def test_the_run_in_an_export_is_the_run_on_record(case):
    found = members(case.whole_zip)
    run, row = json.loads(found["run.json"]), case.storage.get_run(case.whole)
    assert run["run"]["run_id"] == case.whole and run["run"]["status"] == "success"
    assert run["run"]["title"] == "my best run" and run["run"]["project"] == "demo <script>"
    assert json.loads(found["config.json"]) == row["config"] == run["run"]["config"]
    assert json.loads(found["environment.json"]) == row["facts"]["environment"]
    packages = row["facts"]["environment"]["packages"]
    assert found["requirements.txt"].decode().splitlines() == [f"{n}=={packages[n]}" for n in sorted(packages)]
    points = run["metrics"]
    names = [points["names"][key] for key in points["name"]]
    values = [float(value) for value in points["value"]]
    stored = case.storage.get_metrics(case.whole)
    assert names == [one["name"] for one in stored] and points["step"] == [one["step"] for one in stored]
    assert [repr(value) for value in values] == [repr(one["value"]) for one in stored] and len(values) == 18
    assert points["at"] == [one["at"] for one in stored]
    assert [(one["path"], one["size_bytes"], one["sha256"]) for one in run["artifacts"]] == [
        (str(case.folder / "model.bin"), len(archive_case.CHECKPOINT), "ab" * 32), ("later.bin", 5, None)
    ]  # fmt: skip
    assert [one["source"] for one in run["cells"]] == ["x = 1\n"] * 2
    assert run["samples"][0]["rss_bytes"] == 1000 and run["gpu_samples"][0]["uuid"] == "GPU-1"
    assert run["run"]["facts"]["odd"] == {"nan": "nan", "big": str(2**60), "lone": "a?b"}
    assert not {"pid", "process_started", "boot_id"} & run["run"].keys()


def test_capsule_and_campaign_are_the_documents_on_record(case):
    found = members(case.failed_zip)
    assert found["capsule.json"].decode() == case.storage.evidence.capsule(case.failed)["document"]
    artifact = case.storage.path / "artifacts" / "first" / "recovery-result.json"
    assert found["campaigns/first/recovery-result.json"] == artifact.read_bytes()


def test_the_patch_is_exact_and_the_bytes_of_artifacts_stay_out(case):
    found = members(case.whole_zip)
    assert found["patch.diff"] == archive_case.PATCH
    assert not any(archive_case.CHECKPOINT[:20] in data for data in found.values())


def test_every_capsule_of_a_run_is_in_it_and_the_last_one_is_the_capsule(storage, tmp_path):
    run = watcherml.Run("demo", {}, storage, quiet=True).start()
    for number in range(3):
        run.record_failure(RuntimeError(f"failure {number}"))
    run.interrupt("enough", "failed")
    found = members(export_run(run.run_id, tmp_path / "x.zip", storage=storage).path)
    told = [json.loads(found[name])["value"]["failure"]["message"]
            for name in ("capsules/0001.json", "capsules/0002.json", "capsule.json")]  # fmt: skip
    assert told == ["failure 0", "failure 1", "failure 2"]


def test_the_same_run_gives_the_same_bytes(case, tmp_path, monkeypatch):
    for number, path in enumerate((case.whole_zip, case.failed_zip)):
        run_id = (case.whole, case.failed)[number]
        monkeypatch.setenv("TZ", f"UTC-{number}")
        again = export_run(run_id, tmp_path / f"{number}.zip", storage=case.storage)
        assert Path(again.path).read_bytes() == path.read_bytes()
    shutil.copytree(case.storage.path, tmp_path / "copy")
    with zipfile.ZipFile(case.whole_zip) as archive:
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    again = export_run(case.whole, tmp_path / "of-a-copy.zip", storage=tmp_path / "copy")
    assert Path(again.path).read_bytes() == case.whole_zip.read_bytes()


def test_an_export_is_private_and_refuses_to_replace_a_file(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = export_run(case.whole, storage=case.storage)
    assert made.path == f"watcher-{case.whole}.zip" and made.points == 18 and made.campaigns == ()
    assert stat.S_IMODE(os.stat(made.path).st_mode) == 0o600
    Path(made.path).write_text("mine")
    with pytest.raises(InvalidValue, match=r"--out: expected a name that is free.*--force"):
        export_run(case.whole, storage=case.storage)
    assert Path(made.path).read_text() == "mine"
    export_run(case.whole, storage=case.storage, force=True)
    assert Path(made.path).read_bytes() == case.whole_zip.read_bytes()
    (tmp_path / "folder").mkdir()
    assert export_run(case.whole, tmp_path / "folder", storage=case.storage).path.endswith(f"/watcher-{case.whole}.zip")
    assert sorted(os.listdir(tmp_path)) == ["folder", made.path]


def test_what_cannot_be_exported_is_said_and_leaves_nothing(case, tmp_path, monkeypatch):
    with pytest.raises(NotFound):
        export_run("nobody", tmp_path / "x.zip", storage=case.storage)
    with pytest.raises(NotFound):
        export_run("nobody", tmp_path / "x.zip", storage=tmp_path / "no-store")
    for target in (tmp_path / "no" / "folder" / "x.zip", tmp_path / ("x" * 300)):
        with pytest.raises(InvalidValue, match="--out: expected a file that can be written"):
            export_run(case.whole, target, storage=case.storage)
    monkeypatch.setattr(portable, "MAX_POINTS", 10)
    monkeypatch.setattr("watcherml.store.portable_rows.MAX_POINTS", 10)
    with pytest.raises(InvalidValue, match=r"at most 10 metric points.*watcher pack"):
        export_run(case.whole, tmp_path / "x.zip", storage=case.storage)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_no_export(case, tmp_path):
    import places

    with places.mounted(tmp_path / "small", "4k") as folder:
        with pytest.raises(InvalidValue, match="No space left"):
            export_run(case.failed, folder / "x.zip", storage=case.storage)
        assert os.listdir(folder) == []


def test_a_running_run_is_exported_with_its_latest_points(storage, tmp_path):
    run = watcherml.Run("p", {}, storage, quiet=True).start()
    run.join_facts()
    for step in range(500):
        run.log_metric("loss", 1.0, step)
    made = export_run(run.run_id, tmp_path / "x.zip", storage=storage)
    assert made.points == 500
    assert json.loads(members(made.path)["run.json"])["run"]["status"] == "running"
    run.finish()


def test_what_packs_too_well_is_stored_so_that_a_reader_takes_it(tmp_path):
    data = {"zeros": bytes(3_000_000), "text": b"a" * 400, "zeros2": bytes(900_000), "z/ü.txt": b"x"}
    (tmp_path / "file").write_bytes(bytes(2_000_000))
    archive_write.write_archive(tmp_path / "x.zip", "test", {**data, "file": tmp_path / "file"})
    with (tmp_path / "x.zip").open("rb") as stream:
        archive = Archive(stream)
        assert archive.check() == [] and archive_write.irregularities(stream, archive) == []
        assert {name: archive.read(name) for name in data} == data
        assert archive.read("file") == bytes(2_000_000)


def test_git_applies_an_exported_patch(tmp_path, monkeypatch):
    def git(*words, folder=None):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=b", *words], cwd=folder or repo, check=True,
                       capture_output=True)  # fmt: skip

    repo = tmp_path / "repo"
    repo.mkdir()
    git("init", "-q")
    (repo / "code.py").write_bytes(b"a = 1\r\nb = 2\n")
    (repo / "data.bin").write_bytes(bytes(range(256)))
    git("add", ".")
    git("commit", "-qm", "one")
    (repo / "code.py").write_bytes(b"a = 1\r\nb = 3\n")
    (repo / "data.bin").write_bytes(bytes(reversed(range(256))) * 3)
    monkeypatch.chdir(repo)
    storage = Storage(tmp_path / "store")
    run = watcherml.Run("p", {}, storage, quiet=True).start()
    run.finish()
    patch = members(export_run(run.run_id, tmp_path / "x.zip", storage=storage).path)["patch.diff"]
    (tmp_path / "patch.diff").write_bytes(patch)
    git("clone", "-q", str(repo), str(tmp_path / "clean"))
    git("apply", str(tmp_path / "patch.diff"), folder=tmp_path / "clean")
    for name in ("code.py", "data.bin"):
        assert (tmp_path / "clean" / name).read_bytes() == (repo / name).read_bytes()


# -- any change is found ----------------------------------------------------------------------------------------------


def opened(data):
    stream = io.BytesIO(data)
    return open_export(Archive(stream, "x.zip"), stream)


def test_an_untouched_export_opens(case):
    found = opened(case.whole_zip.read_bytes())
    assert found.run.run.run_id == case.whole and math.isnan(float(found.run.points.values[4]))


def flips(data, every):
    """Return the offsets to change: every header byte, and some or all of the rest."""
    starts = [at for mark in (b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06")
              for at in range(len(data)) if data.startswith(mark, at)]  # fmt: skip
    headers = {at + number for at in starts for number in range(70) if at + number < len(data)}
    return sorted(headers | set(range(0, len(data), every)))


@pytest.mark.parametrize("every", [37, pytest.param(1, marks=pytest.mark.long)])
def test_no_byte_of_an_export_can_be_changed(case, every):
    data = case.whole_zip.read_bytes()
    missed = []
    for at in flips(data, every):
        for bit in (1, 0x80) if every > 1 else (1, 2, 4, 8, 16, 32, 64, 128):
            changed = bytearray(data)
            changed[at] ^= bit
            try:
                opened(bytes(changed))
                missed.append((at, bit))
            except WatcherError:
                pass
    assert missed == []


def test_nothing_can_be_put_before_between_or_behind_the_members(case):
    data = case.whole_zip.read_bytes()
    second = data.index(b"PK\x03\x04", 4)
    for changed in (b"x" + data, data + b"x", data[:second] + b"x" + data[second:], data[:-1]):
        with pytest.raises(WatcherError):
            opened(changed)


def test_another_packing_of_the_same_members_is_found(case, tmp_path):
    found = members(case.whole_zip)
    with zipfile.ZipFile(tmp_path / "again.zip", "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in found.items():
            target.writestr(name, data)
    with pytest.raises(InvalidValue, match="header that it was written with"):
        opened((tmp_path / "again.zip").read_bytes())
