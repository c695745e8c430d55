"""What Binder builds: without docker and repo2docker, what a build would trip over."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT, POST_BUILD = ROOT / "binder" / "environment.yml", ROOT / "binder" / "postBuild"
# What conda calls differently than pip.
CONDA_NAMES = {"torch": "pytorch-cpu", "matplotlib": "matplotlib-base"}


def environment():
    return pytest.importorskip("yaml").safe_load(ENVIRONMENT.read_text("utf-8"))


def extras():
    """The lists of optional dependencies in pyproject.toml, as name to bound."""
    text = (ROOT / "pyproject.toml").read_text("utf-8").split("[project.optional-dependencies]")[1].split("\n[")[0]
    found = re.findall(r"^(\w+) = \[(.*?)\]", text, re.DOTALL | re.MULTILINE)
    return {name: dict(split(one) for one in re.findall(r'"([^"]+)"', body)) for name, body in found}


def split(requirement):
    name, bound = re.fullmatch(r"([A-Za-z0-9-]+)(.*)", requirement).groups()
    return name, bound


def installed_from_the_checkout():
    """The extras in postBuild's pip command."""
    return re.findall(r'pip install (?:-\S+ )*"\.\[(\w+)\]"', POST_BUILD.read_text("utf-8"))


def test_the_environment_asks_conda_forge_alone_for_a_torch_without_cuda():
    found = environment()
    assert found["channels"] == ["conda-forge", "nodefaults"]
    names = [split(one)[0] for one in found["dependencies"]]
    assert "pytorch-cpu" in names and "pip" in names
    assert not {"torch", "pytorch", "pytorch-gpu", "cuda-version"} & set(names)


def test_its_python_is_one_that_the_package_takes():
    python = next(one for one in environment()["dependencies"] if one.startswith("python="))
    version = tuple(int(part) for part in python.partition("=")[2].split("."))
    floor = re.search(r'requires-python = ">=(\d+)\.(\d+)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    assert version >= tuple(map(int, floor.groups()))
    assert f"Python :: {version[0]}.{version[1]}" in (ROOT / "pyproject.toml").read_text("utf-8")


def test_conda_and_the_checkout_together_bring_the_demo_with_its_bounds():
    by_conda, known = dict(split(one) for one in environment()["dependencies"]), extras()
    by_pip = {}
    for extra in installed_from_the_checkout():
        by_pip.update(known[extra])
    for name, bound in known["demo"].items():
        conda_name = CONDA_NAMES.get(name, name)
        assert by_pip.get(name) == bound or by_conda.get(conda_name) == bound, f"{name}{bound} is in neither"
    # A torch that pip resolves comes with CUDA.
    assert "torch" not in by_pip and installed_from_the_checkout() == ["notebook"]


@pytest.mark.skipif(os.name == "nt", reason="files carry no executable bit there")
def test_post_build_can_be_executed_and_is_a_script():
    assert os.access(POST_BUILD, os.X_OK)
    text = POST_BUILD.read_text("utf-8")
    assert text.startswith("#!/usr/bin/env bash\n") and "set -euo pipefail" in text
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash on this machine")
    checked = subprocess.run([bash, "-n", str(POST_BUILD)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.skipif(os.name == "nt" or not shutil.which("bash"), reason="needs bash")
@pytest.mark.parametrize(("cuda", "doctor", "ends"), [("None", 0, 0), ("'12.8'", 0, 1), ("None", 1, 1)])
def test_post_build_fails_the_image_that_pulled_cuda_or_cannot_run_a_trial(tmp_path, cuda, doctor, ends):
    """The script itself, with stand-ins for what it calls: pip succeeds, torch says what it was built with."""
    (tmp_path / "torch.py").write_text(f"class version: cuda = {cuda}\n")
    (tmp_path / "python").write_text(f'#!/bin/sh\n[ "$2" = pip ] && exit 0\nexec "{sys.executable}" "$@"\n')
    (tmp_path / "watcher").write_text(f"#!/bin/sh\nexit {doctor}\n")
    for name in ("python", "watcher"):
        (tmp_path / name).chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    run = subprocess.run(
        ["bash", str(POST_BUILD)], env={**os.environ, "PATH": path, "PYTHONPATH": str(tmp_path)}, cwd=ROOT,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == ends, run.stderr


def test_binder_reads_its_folder_and_nothing_beside_it_hides_it():
    """A folder ``binder`` wins over files at the root, and ``environment.yml`` in it over the other kinds there."""
    assert not (ROOT / ".binder").exists() and not (ROOT / "Dockerfile").exists()
    assert sorted(path.name for path in ENVIRONMENT.parent.iterdir()) == ["environment.yml", "postBuild"]
