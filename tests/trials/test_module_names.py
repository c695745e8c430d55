"""What a module's name led to, where its file was imported while training ran, and files dated by a coarse clock."""

import importlib.machinery
import importlib.util
import io
import sys
import threading
import time

import pytest

from watcherml.trials import code


@pytest.fixture
def watched(tmp_path, monkeypatch):
    """Return a call that begins to watch the imports of the folder as in a trial whose function is called now."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(io, "open_code", io.open_code)
    for loader, method in code._LOADERS:
        monkeypatch.setattr(loader, method, getattr(loader, method))  # puts back what is told of here
    monkeypatch.syspath_prepend(tmp_path)
    known = set(sys.modules)

    def watch():
        began = code.Began(time.time())
        files = code.watch_imports(tmp_path / "project", began)
        began.calls()
        return files

    yield watch
    for name in set(sys.modules) - known:
        del sys.modules[name]


def put(folder, **texts):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    importlib.invalidate_caches()


def imported_anew(name):
    for known in [one for one in sys.modules if one.partition(".")[0] == name]:
        del sys.modules[known]
    importlib.import_module(name)


def test_a_package_that_comes_before_a_module_of_its_name_is_another_content_of_that_name(
    tmp_path, watched, monkeypatch
):
    project = tmp_path / "project"
    put(project, late_module="VALUE = 1")
    monkeypatch.syspath_prepend(project)
    contents = []
    for _ in range(2):
        files = watched()
        imported_anew("late_module")
        contents.append(files["module late_module"])
        put(project / "late_module", __init__="VALUE = 2")
    assert contents[0] != contents[1]


def test_what_an_install_hook_finds_is_named_and_what_is_run_by_its_path_is_not(tmp_path, watched):
    put(tmp_path / "checkout", hooked="", by_path="")

    class Hook:  # as an editable install has: the path finder knows nothing of its module
        @staticmethod
        def find_spec(name, path=None, target=None):
            file = tmp_path / "checkout" / "hooked.py"
            return importlib.util.spec_from_file_location(name, file) if name == "hooked" else None

    files = watched()
    sys.meta_path.append(Hook)
    importlib.import_module("hooked")
    spec = importlib.util.spec_from_file_location("conf", tmp_path / "checkout" / "by_path.py")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    named = {name.removeprefix("made: ") for name in files}
    assert named == {"../checkout/by_path.py", "../checkout/hooked.py", "module hooked"}


def test_a_file_that_the_clock_of_the_kernel_dates_a_tick_back_was_made_now(tmp_path):
    made = tmp_path / "made.py"
    made.write_text("")
    written = made.stat().st_ctime
    assert code.Began(written, written + 0.01).made(made, inside=True)
    assert not code.Began(written, written + 1).made(made, inside=True)


def test_many_threads_that_import_at_once_all_end_and_every_file_is_named(tmp_path, watched, monkeypatch):
    project, threads = tmp_path / "project", 16
    names = [f"together_{number}" for number in range(60)]
    # A ring: each module imports its neighbour while another thread comes from the other side.
    put(project, **{one: f"import together_{(number + 1) % 60}" for number, one in enumerate(names)})
    monkeypatch.syspath_prepend(project)
    files = watched()
    start, ended, looking = threading.Barrier(threads), [], True

    def run(first):
        start.wait()
        for number in range(60):
            importlib.import_module(names[(first * 7 + number) % 60])
        ended.append(first)

    workers = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(threads)]
    for one in workers:
        one.start()
    while looking:
        looking = any(one.is_alive() for one in workers)
        code.together(files, {})  # as the end of a trial does, whose threads go on
    assert sorted(ended) == list(range(threads))
    assert {f"{one}.py" for one in names} <= {name.removeprefix("made: ") for name in files}
