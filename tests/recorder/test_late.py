"""A module that is imported later is met the moment it is there, once, and only it."""

import importlib
import sys

import pytest

from watcherml.recorder.late import when_imported


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with one submodule that has not been imported."""
    folder = tmp_path / "late_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "inner.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("late_package", "late_package.inner"):
        sys.modules.pop(name, None)


def test_the_call_comes_after_the_modules_own_code_and_once(package):
    met, hooks = [], list(sys.meta_path)
    when_imported("late_package.inner", lambda module: met.append(module.value))
    assert met == [] and len(sys.meta_path) == len(hooks) + 1
    importlib.import_module("late_package.inner")

    assert met == [1] and sys.meta_path == hooks
    sys.modules.pop("late_package.inner")
    importlib.import_module("late_package.inner")
    assert met == [1]


def test_a_module_of_a_loaded_package_is_met_at_once(package):
    importlib.import_module("late_package")

    met = []
    when_imported("late_package.inner", lambda module: met.append(module.value))
    assert met == [1]
