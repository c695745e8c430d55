"""Exceptions that end the person's threads: on record, printed as ever, their memory given back."""

import gc
import threading
import weakref

import pytest
from notebook_shell import INIT, OOM

from watcherml.notebook.session import Session

WORK = f"""
import threading
class Big:
    pass
def work():
    big = Big()
    seen.append(weakref.ref(big))
    raise RuntimeError({OOM!r})
def go(target):
    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
"""


@pytest.fixture
def threads(notebook, monkeypatch):
    """A notebook whose threads' tracebacks go to a list instead of the terminal."""
    notebook.run("%unload_ext watcherml")
    printed = []
    monkeypatch.setattr(threading, "excepthook", lambda given: printed.append(given.exc_type.__name__))
    notebook.run("%load_ext watcherml")
    notebook["seen"], notebook["weakref"], notebook["printed"] = [], weakref, printed
    notebook.run(WORK)
    return notebook


def failures(notebook):
    return notebook.store.evidence.failures()


def test_a_threads_failure_is_an_event_of_the_open_run_and_its_memory_comes_back(threads):
    threads.run(INIT)
    gc.disable()
    try:
        outcome = threads.run("go(work)")
        assert threads["seen"][0]() is None
    finally:
        gc.enable()
    (failure,) = failures(threads)
    assert (failure["run_id"], failure["failure_class"]) == (threads["run"].run_id, "cuda_out_of_memory")
    assert threads["run"].status == "running", "training may go on in another thread"
    assert outcome.error is None and threads["printed"] == ["RuntimeError"]
    assert "Gave back" in outcome.text and "goes on" in outcome.text
    assert "in work" in threads.store.get_capsule(failure["run_id"])["failure"]["traceback"]


@pytest.mark.parametrize(
    "opened", ["with watcherml.init('inner'):\n        work()", "watcherml.init('inner')\n    work()"]
)
def test_a_run_that_a_thread_has_opened_fails_with_it_and_is_captured_once(threads, opened):
    threads.run(INIT)
    outcome = threads.run(f"def own():\n    {opened}\ngo(own)")
    (failure,) = failures(threads)
    assert failure["run_id"].startswith("inner-") and threads.store.get_run(failure["run_id"])["status"] == "failed"
    assert threads["run"].status == "running"
    assert outcome.text.count("has ended as failed") == 1


def test_without_a_run_it_can_be_put_on_record_later(threads, tmp_path):
    outcome = threads.run("go(work)")
    assert "%watcher capture" in outcome.text and not (tmp_path / ".watcherml").exists()
    threads.run("%watcher capture")
    assert len(failures(threads)) == 1


def test_a_failure_between_cells_is_shown_at_once(threads, capsys):
    threads.run(INIT)
    thread = threading.Thread(target=threads["work"])
    thread.start()
    thread.join()
    assert "CUDA ran out of memory" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["KeyboardInterrupt", "SystemExit"])
def test_an_interruption_of_a_thread_is_no_failure(threads, kind):
    threads.run(INIT)
    threads.run(f"def stop():\n    raise {kind}\ngo(stop)")
    assert failures(threads) == [] and threads["printed"] == [kind]


def test_threads_of_the_front_end_are_left_alone(threads):
    threads.run(INIT)
    space = {"__name__": "ipykernel.iostream"}
    exec("def flush():\n    raise OSError('broken pipe')", space)
    threads["flush"] = space["flush"]
    threads.run("go(flush)")
    assert failures(threads) == [] and threads["printed"] == ["OSError"]


def test_what_breaks_in_the_hook_is_counted_and_the_traceback_printed(threads, monkeypatch):
    threads.run(INIT)
    monkeypatch.setattr(threads["run"], "record_failure", lambda error: 1 / 0)
    threads.run("go(work)")
    assert threads["printed"] == ["RuntimeError"]
    assert "ZeroDivisionError" in Session.of(threads.shell).problems[0]


def test_unloading_gives_the_hook_back_and_a_hook_set_meanwhile_stays(threads):
    ours = threading.excepthook
    threads.run("%unload_ext watcherml")
    assert threading.excepthook is not ours
    threads.run("%load_ext watcherml")
    inner = threading.excepthook
    threading.excepthook = outer = lambda given: inner(given)
    threads.run("%unload_ext watcherml")
    assert threading.excepthook is outer
    threads.run(INIT)
    threads.run("go(work)")
    assert threads["printed"] == ["RuntimeError"] and failures(threads) == []
