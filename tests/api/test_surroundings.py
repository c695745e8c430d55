"""What ``watcher doctor`` finds around a store: each fault is made for real, and each finding says what to do."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from watcherml.api import doctor, surroundings
from watcherml.recorder.run import Run
from watcherml.store.storage import Storage

ROOT = Path(__file__).resolve().parents[2]
IN_A_MOUNT = [shutil.which("unshare") or "", "-m", "sh", "-c"]


def may_mount():
    return bool(IN_A_MOUNT[0]) and subprocess.run([*IN_A_MOUNT, "true"], capture_output=True).returncode == 0


def elsewhere(code, **environment):
    """Run a piece of Python that prints findings; returns them by name."""
    code = (
        "import json, sys\nfrom pathlib import Path\nfrom watcherml.api import doctor, surroundings\n"
        f"from watcherml.store.storage import Storage\nfound = []\n{code}\n"
        "print(json.dumps({one.name: [one.status, one.sentence, one.remedy] for one in found}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_ordinary_machine_has_nothing_to_mend(storage, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    found = {one.name: one for one in surroundings.look(storage)}
    assert list(found)[:5] == ["Temporary files", "Space", "Clock", "git", "Extras"]
    assert {found[name].status for name in ("Temporary files", "Clock", "git")} == {"ok"}
    assert sorted(tmp_path.rglob("*")) == before


def test_the_extras_and_their_modules_are_those_of_pyproject():
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    modules = {"ipython": "IPython", "nvidia-ml-py": "pynvml"}
    for extra, expected in surroundings.EXTRAS.items():
        listed = re.search(rf"^{extra} = \[(.*?)\]$", text, re.MULTILINE).group(1)
        names = [re.match(r"[\w-]+", one).group() for one in re.findall(r'"(.*?)"', listed)]
        assert tuple(modules.get(name, name) for name in names) == expected


def test_a_missing_extra_is_named_with_the_command_that_adds_it(monkeypatch):
    monkeypatch.setattr(surroundings, "EXTRAS", {"ui": ("starlette_of_nobody",), "notebook": ("json",)})
    found = surroundings.extras()
    assert found.status == "ok" and "ui lacks starlette_of_nobody" in found.sentence
    assert found.remedy == 'From the clone: pip install ".[ui]"' and "Installed: notebook" in found.sentence


def test_a_driver_without_its_python_package_is_a_warning(monkeypatch, tmp_path):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setattr(surroundings, "EXTRAS", {"nvidia": ("pynvml_of_nobody",)})
    monkeypatch.setattr(surroundings, "_DRIVER", tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = surroundings.extras()
    assert found.status == "warn" and ".[nvidia]" in found.remedy


@pytest.mark.parametrize(
    ("build", "remedy"), [(None, "build of PyTorch for your CUDA"), ("12.8", "CUDA_VISIBLE_DEVICES")]
)
def test_a_driver_that_torch_does_not_use_is_a_warning_with_the_next_step(monkeypatch, build, remedy):
    monkeypatch.setattr(surroundings, "has_nvidia_driver", lambda: True)
    found = doctor._cuda({"gpus": [], "cuda_build": build})
    assert found.status == "warn" and remedy in found.remedy
    monkeypatch.setattr(surroundings, "has_nvidia_driver", lambda: False)
    assert doctor._cuda({"gpus": [], "cuda_build": build}).status == "ok"


def test_a_machine_without_git_is_told_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = surroundings.git()
    assert found.status == "warn" and "not installed" in found.sentence and "Install git" in found.remedy


@pytest.mark.skipif(os.name == "nt", reason="a working directory cannot be removed there")
def test_a_working_directory_that_is_gone_is_a_finding(monkeypatch, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    found = surroundings.git()
    assert found.status == "warn" and "working directory" in found.sentence and found.remedy


def test_little_space_is_a_warning_with_what_makes_room(monkeypatch, tmp_path):
    monkeypatch.setattr(surroundings, "LEAST_FREE_BYTES", 2**80)
    found = surroundings.space(tmp_path / "not" / "made" / "yet")
    assert found.status == "warn" and "prune --trials" in found.remedy
    monkeypatch.setattr(surroundings, "LEAST_FREE_BYTES", 0)
    assert surroundings.space(tmp_path).status == "ok"


def test_a_run_of_the_future_tells_that_the_clock_was_set_back(storage):
    with Run("demo", {}, storage, quiet=True):
        pass
    assert surroundings.clock(storage).status == "ok"
    with storage.database.writing() as connection:
        connection.execute("UPDATE runs SET started_at = ?", (time.time() + 3 * 86_400,))
    found = surroundings.clock(Storage(storage.path))
    assert found.status == "warn" and "3 days ahead of now" in found.sentence and "network time" in found.remedy


@pytest.mark.parametrize(("seconds", "words"), [(7_300, "2 hours behind"), (-90, "90 seconds ahead of")])
def test_a_file_system_with_another_clock_is_a_warning(storage, monkeypatch, seconds, words):
    now = time.time
    monkeypatch.setattr(surroundings.time, "time", lambda: now() + seconds)
    found = surroundings.clock(storage)
    monkeypatch.undo()
    assert found.status == "warn" and f"{words} this machine's" in found.sentence and found.remedy


def test_a_folder_for_temporary_files_that_cannot_be_used_is_a_warning(tmp_path):
    code = "found = [surroundings.temporary_files()]"
    status, sentence, remedy = elsewhere(code, TMPDIR=str(tmp_path / "none"))["Temporary files"]
    assert status == "warn" and str(tmp_path / "none") in sentence and "unset TMPDIR" in remedy
    assert elsewhere(code, TMPDIR=str(tmp_path))["Temporary files"][0] == "ok"


@pytest.mark.parametrize("make", ["a file in the way", "a folder nobody can write"])
def test_a_runtime_folder_that_cannot_be_written_costs_the_sidebar(make, monkeypatch, tmp_path):
    pytest.importorskip("jupyter_core")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    assert surroundings.sidebar().status == "ok" and list(tmp_path.iterdir()) == []
    if make == "a file in the way":
        (tmp_path / "watcherml").write_text("mine")
    else:
        monkeypatch.setenv("JUPYTER_RUNTIME_DIR", "/proc/jupyter-runtime")  # refuses even root
    found = surroundings.sidebar()
    assert found.status == "warn" and "JUPYTER_RUNTIME_DIR" in found.remedy


# -- the whole of it -----------------------------------------------------------------------------------------------


@pytest.mark.skipif(not may_mount(), reason="needs the right to mount")
def test_a_full_disk_is_found_though_an_empty_transaction_succeeds_on_it(tmp_path):
    (tmp_path / "small").mkdir()
    (tmp_path / "fill.py").write_text(
        "import json\nfrom watcherml.api import doctor, surroundings\nfrom watcherml.store.storage import Storage\n"
        "storage = Storage('small/s')\nstorage.create()\n"
        # Another reader keeps the files beside the database, so that SQLite need not make them.
        "with storage.database.reading() as other, open('small/fill', 'wb', buffering=0) as stream:\n"
        "    other.execute('SELECT * FROM runs').fetchall()\n"
        "    try:\n        while stream.write(bytes(4096)):\n            pass\n    except OSError:\n        pass\n"
        "    found = [doctor._location(storage), surroundings.space(storage.path)]\n"
        "print(json.dumps([one.to_data() for one in found]))\n"
    )
    done = subprocess.run(
        [*IN_A_MOUNT, f"mount -t tmpfs -o size=2m tmpfs small && exec {sys.executable} fill.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    store, space = json.loads(done.stdout)
    assert store["status"] == "fail" and "No space left" in store["sentence"] and store["remedy"]
    assert space["status"] == "warn" and space["remedy"]


def test_a_machine_without_a_place_for_temporary_files_is_told_so_everywhere(storage, monkeypatch):
    monkeypatch.setattr(doctor, "_torch", lambda: iter(()))
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nothing-here")
    found = {one.name: one for one in doctor.examine(storage)}
    assert {one.name for one in found.values() if one.status == "fail"} == {"Temporary files", "Trial"}
    assert "TMPDIR" in found["Temporary files"].remedy and "not installed" not in found["git"].sentence
    assert all(one.remedy for one in found.values() if one.status != "ok")


@pytest.mark.parametrize("fault", ["sys.modules['psutil'] = None", "import psutil; del psutil.Process.children"])
def test_a_broken_psutil_is_one_finding_with_the_command_that_mends_it(fault, tmp_path):
    code = f"{fault}\nfound = list(doctor.examine(Storage({str(tmp_path / 's')!r})))"
    found = elsewhere(code)
    assert list(found) == ["Python", "psutil"]
    status, sentence, remedy = found["psutil"]
    assert status == "fail" and "pip install --force-reinstall" in remedy and sentence


def test_a_command_that_meets_a_broken_psutil_says_how_to_mend_it(storage):
    storage.create()
    code = "import sys; sys.modules['psutil'] = None; from watcherml.cli.main import main; sys.exit(main(['failures']))"
    done = subprocess.run([sys.executable, "-c", code], cwd=storage.path.parent, capture_output=True, text=True)
    assert done.returncode == 1 and "force-reinstall" in done.stderr and "should not happen" not in done.stderr
