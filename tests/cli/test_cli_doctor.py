"""``watcher doctor``: what it finds is tried for real, and only what is needed can fail it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from watcherml.api import doctor
from watcherml.cli.main import main
from watcherml.store.storage import Storage
from watcherml.trials.paths import MARKER


def examined(storage):
    return {finding.name: finding for finding in doctor.examine(storage)}


@pytest.fixture
def without_torch(monkeypatch):
    """Leave PyTorch out of the findings, because asking it takes seconds."""
    monkeypatch.setattr(doctor, "_torch", lambda: iter(()))


def test_a_healthy_machine_ends_with_0_and_nothing_is_left_behind(storage, capsys, tmp_path):
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    for name in ("Python", "psutil", "Store", "Schema", "Trial", "PyTorch", "CUDA", "Simulated device"):
        assert f"\nok    {name}: " in "\n" + shown, shown
    assert "fresh process was guarded, trained 3 steps" in shown and "Everything that is needed works." in shown
    assert not storage.path.exists() and list(tmp_path.iterdir()) == []


def test_json_holds_each_finding_with_status_and_remedy(storage, without_torch, capsys):
    storage.create()
    assert main(["doctor", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "doctor" and document["healthy"] is True
    assert all(set(one) == {"name", "status", "sentence", "remedy"} for one in document["findings"])
    assert "journal mode wal" in next(one for one in document["findings"] if one["name"] == "Store")["sentence"]


@pytest.mark.parametrize("make", ["a file in the way", "a foreign database", "a folder nobody can write"])
def test_a_store_that_cannot_record_fails_it_with_a_remedy(make, storage, without_torch, capsys, tmp_path):
    path = storage.path
    if make == "a file in the way":
        path.write_text("mine")
    elif make == "a foreign database":
        path.mkdir()
        (path / "watcherml.db").write_bytes(b"not a database" * 1000)
    else:
        path = Path("/proc/watcherml-store")  # refuses even root
    assert main(["--data-dir", str(path), "doctor", "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    failed = [one for one in document["findings"] if one["status"] == "fail"]
    assert document["healthy"] is False and failed and all(one["remedy"] for one in failed)
    assert {one["name"] for one in failed} <= {"Store", "Schema"}
    if make == "a file in the way":
        assert storage.path.read_text() == "mine"


def test_a_damaged_page_is_found_even_if_nothing_has_read_it_yet(storage, without_torch):
    with storage.database.writing() as connection:
        connection.execute("CREATE TABLE filler (content BLOB)")
        connection.executemany("INSERT INTO filler VALUES (randomblob(9000))", [()] * 20)
    database = storage.path / "watcherml.db"
    content = database.read_bytes()
    database.write_bytes(content[:-4096] + os.urandom(4096))
    found = examined(Storage(storage.path))
    assert (found["Store"].status, found["Schema"].status) == ("ok", "fail")
    assert "damaged" in found["Schema"].sentence and found["Schema"].remedy
    assert not doctor.healthy(list(found.values()))


def test_a_store_that_others_may_read_is_a_warning(storage, without_torch):
    storage.create()
    storage.path.chmod(0o755)
    found = examined(storage)
    assert found["Store"].status == "warn" and "chmod 700" in found["Store"].remedy
    assert doctor.healthy(list(found.values()))


def test_a_worker_that_cannot_run_fails_it_and_says_why(storage, without_torch, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "_ENTRYPOINT", "raise OSError('no such luck')\n")
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "fail  Trial: " in shown and "no such luck" in shown and "1 of " in shown


def test_a_worker_that_does_less_than_it_was_asked_fails_it(storage, without_torch, monkeypatch):
    monkeypatch.setattr(
        doctor, "_ENTRYPOINT", "def train(config, max_steps=None):\n    return {'steps_completed': 1}\n"
    )
    assert examined(storage)["Trial"].status == "fail"


def test_a_worker_that_hangs_is_ended_with_its_processes(storage, without_torch, monkeypatch):
    monkeypatch.setattr(doctor, "WORKER_SECONDS", 2.0)
    monkeypatch.setattr(doctor, "_ENTRYPOINT", "import time\ntime.sleep(600)\n")
    found = examined(storage)
    assert found["Trial"].status == "fail" and "timeout" in found["Trial"].sentence
    mine = f"doctor-{os.getpid()}"
    for process in psutil.process_iter():
        try:
            assert not process.environ().get(MARKER, "").startswith(mine)
        except (psutil.Error, OSError):
            continue


def test_without_torch_recording_is_still_healthy(tmp_path):
    """A Python whose PyTorch is hidden: nothing fails, and the finding says that it is not needed."""
    code = (
        "import sys; from importlib import metadata; real = metadata.version\n"
        "def version(name):\n"
        "    if name == 'torch': raise metadata.PackageNotFoundError(name)\n"
        "    return real(name)\n"
        "metadata.version = version\n"
        "from watcherml.cli.main import main; sys.exit(main(['doctor', '--format', 'json']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    found = {one["name"]: one for one in json.loads(done.stdout)["findings"]}
    assert found["PyTorch"]["status"] == "ok" and "not needed" in found["PyTorch"]["sentence"]


def test_a_torch_that_does_not_import_is_a_warning(storage, monkeypatch, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "torch.py").write_text("raise ImportError('libcudart.so.99 is missing')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(broken), os.environ["PYTHONPATH"]]))
    found = {finding.name: finding for finding in doctor._torch()}
    assert found["PyTorch"].status == "warn" and "libcudart.so.99" in found["PyTorch"].sentence


@pytest.mark.parametrize(
    ("version", "release"), [("2.13.0+cpu", (2, 13)), ("2.4.1", (2, 4)), ("1.13.1+cu117", (1, 13)), ("nightly", None)]
)
def test_versions_are_compared_as_numbers(version, release):
    assert doctor._release(version) == release


def test_looking_loads_nothing_here(storage):
    code = (
        "import sys; from watcherml.api import doctor; from watcherml.store.storage import Storage\n"
        "list(doctor.examine(Storage('nowhere')))\n"
        "sys.exit(bool({'torch', 'pandas', 'IPython'} & set(sys.modules)))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode == 0
