"""A module that is imported later is met the moment it is there, once, and only it."""

import importlib
import importlib.machinery
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
    met = []
    when_imported("late_package.inner", lambda module: met.append(module.value))
    assert met == []
    importlib.import_module("late_package.inner")
    assert met == [1]
    sys.modules.pop("late_package.inner")
    importlib.import_module("late_package.inner")
    assert met == [1]


def test_who_stops_waiting_is_not_called_and_another_is(package):
    met = []
    stop = when_imported("late_package.inner", lambda module: met.append("stopped"))
    when_imported("late_package.inner", lambda module: met.append("waits"))
    stop()
    stop()
    importlib.import_module("late_package.inner")
    assert met == ["waits"]


def test_an_import_of_another_thread_goes_through_hooks_that_do_not_move(package):
    """A hook that is taken out of the list moves the next one into a place that the other thread has passed."""
    found, stops = [], []

    class Slow:
        def find_spec(self, name, path=None, target=None):
            found.append(name)
            for stop in stops:
                stop()  # what another thread does in the middle of this import

    stops.append(when_imported("late_package.inner", found.append))
    hook = Slow()
    sys.meta_path.insert(sys.meta_path.index(importlib.machinery.PathFinder), hook)
    try:
        assert importlib.import_module("late_package").__name__ == "late_package"
    finally:
        sys.meta_path.remove(hook)
    hooks = list(sys.meta_path)
    when_imported("never_imported_by_anybody", found.append)()
    assert sys.meta_path == hooks and found == ["late_package"]


def test_a_module_of_a_loaded_package_is_met_at_once(package):
    importlib.import_module("late_package")

    met = []
    when_imported("late_package.inner", lambda module: met.append(module.value))
    assert met == [1]
