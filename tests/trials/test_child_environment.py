"""What a child process takes over from the one that starts it, and which of its files are code."""

import importlib.machinery
import os
import py_compile
import sys

import pytest

from watcherml import TrainingEntrypoint, validate_entrypoint
from watcherml.trials import code
from watcherml.trials.check_entrypoint import child_environment

TRAIN = "import helper\ndef train(config, max_steps=None):\n    return {'steps_completed': helper.STEPS}\n"


def entries():
    return child_environment()["PYTHONPATH"].split(os.pathsep)


def test_a_relative_pythonpath_means_to_a_child_what_it_means_here(tmp_path, monkeypatch):
    (tmp_path / "lib").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "lib" / "helper.py").write_text("STEPS = 3\n")
    (tmp_path / "project" / "ent.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["lib", os.environ["PYTHONPATH"]]))
    found = validate_entrypoint(TrainingEntrypoint("ent:train"), "project")
    assert found.parameters == ("config", "max_steps") and list(found.code.files) == ["ent.py"]


def test_an_entry_counts_from_where_this_process_started(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "src")])  # as site spelled it out at the start
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["src", "./src/", "other", "", "/absolute"]))
    here = str(tmp_path / "elsewhere" / "other")
    assert entries()[-5:] == [str(tmp_path / "src"), str(tmp_path / "src"), here, "", "/absolute"]


def test_the_folder_of_the_script_is_not_taken_for_an_entry_that_ends_as_it_does(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path / "tools" / "src"), str(tmp_path / "src"), *sys.path])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "src")
    assert entries()[-1] == str(tmp_path / "src")


def test_a_deleted_working_directory_stops_no_child(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setenv("PYTHONPATH", "src")
    assert entries()[-1] == "src"


def test_a_child_ends_when_it_is_done(monkeypatch):
    monkeypatch.setenv("PYTHONINSPECT", "1")
    assert "PYTHONINSPECT" not in child_environment()


def test_bytecode_without_its_source_is_code_of_the_project(tmp_path, monkeypatch):
    (tmp_path / "ent.py").write_text(TRAIN)
    (tmp_path / "helper.py").write_text("STEPS = 3\n")
    py_compile.compile(str(tmp_path / "helper.py"), str(tmp_path / "helper.pyc"))
    (tmp_path / "helper.py").unlink()
    monkeypatch.chdir(tmp_path)
    assert sorted(validate_entrypoint("ent:train").code.files) == ["ent.py", "helper.pyc"]


@pytest.mark.parametrize("suffix", importlib.machinery.EXTENSION_SUFFIXES)
def test_a_compiled_extension_is_code_of_the_project(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(code, "_LOADERS", ())  # or this process would go on telling
    monkeypatch.syspath_prepend(tmp_path)
    fast = tmp_path / f"fast{suffix}"
    fast.write_bytes(b"built once")
    files = code.watch_imports(tmp_path)
    with pytest.raises(ImportError):
        __import__("fast")
    first = dict(files)
    fast.write_bytes(b"built again")
    files = code.watch_imports(tmp_path)
    with pytest.raises(ImportError):
        __import__("fast")
    assert list(first) == [fast.name] and files[fast.name] != first[fast.name]


def test_the_cache_of_bytecode_is_no_code(tmp_path, monkeypatch):
    cached = tmp_path / "__pycache__" / "ent.cpython-311.pyc"
    cached.parent.mkdir()
    cached.write_bytes(b"")
    assert code._digest_of(str(cached), tmp_path) is None
    assert not code._is_code(str(tmp_path / "data.csv"))
