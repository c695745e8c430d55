"""What follows a failed cell: the capsule, the memory given back, the panel, and a run that goes on after a typo."""

import gc
import re
import sys
import weakref
from types import SimpleNamespace

import pytest
from notebook_shell import INIT, OOM

from watcherml.notebook.session import Session

FAIL = f"""
class Tensor:
    pass

def fail():
    tensor = Tensor()
    seen.append(weakref.ref(tensor))
    raise RuntimeError({OOM!r})
"""
SHAPES = {
    "nested call": "def outer():\n    fail()\nouter()",
    "raise from": "try:\n    fail()\nexcept RuntimeError as error:\n    raise ValueError('wrapped') from error",
    "kept by the person": "kept = []\ntry:\n    fail()\nexcept RuntimeError as e:\n    kept.append(e)\n    raise",
    "await": "async def outer():\n    fail()\nawait outer()",
    "with a run": "with watcherml.init('inner') as run:\n    fail()",
}


@pytest.fixture
def prepared(notebook):
    notebook["seen"], notebook["weakref"] = [], weakref
    notebook.run(INIT)
    notebook.run(FAIL)
    return notebook


def row(notebook):
    return notebook.store.get_run(notebook["run"].run_id)


# -- an out of memory ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_the_memory_of_the_failed_cell_comes_back(prepared, shape):
    gc.disable()  # so that nothing but the release can have collected
    try:
        outcome = prepared.run(SHAPES[shape])
    finally:
        gc.enable()
    assert isinstance(outcome.error, (RuntimeError, ValueError))
    assert prepared["seen"][0]() is None
    assert "Memory given back" in outcome.text and "Gave back" in outcome.text
    assert not hasattr(sys, "last_value")


def test_an_oom_cell_ends_the_run_as_failed_with_its_capsule(prepared):
    outcome = prepared.run("run.log_metric('loss', 0.5, 3)\nfail()")
    assert row(prepared)["status"] == "failed"
    capsule = prepared.store.get_capsule(prepared["run"].run_id)
    assert capsule["failure"]["class"] == "cuda_out_of_memory"
    assert capsule["failure"]["step"] == 3
    for text in (outcome.text, outcome.html):
        assert "CUDA ran out of memory" in text
        assert "20.0 MiB" in text and "3.0 MiB" in text
        assert "has ended as failed" in text
        assert "%%watcher recover" in text
    assert 'class="wml-failure"' in outcome.html


def test_the_panel_stands_under_the_traceback(prepared, capsys):
    capsys.readouterr()
    prepared.shell.run_cell("fail()")
    printed = capsys.readouterr().out
    assert 0 <= printed.index("Traceback (most recent call last)") < printed.index("Memory given back")


def test_an_oom_inside_a_with_is_captured_once_and_shown(notebook):
    outcome = notebook.run(f"{INIT.replace('run = ', 'with ')} as run:\n    raise RuntimeError({OOM!r})")
    assert row(notebook)["status"] == "failed"
    assert len(notebook.store.evidence.failures()) == 1
    assert outcome.html.count('class="wml-failure"') == 1
    assert "CUDA ran out of memory" in outcome.text


def test_a_run_around_the_with_that_failed_stays_open(prepared):
    outer = prepared["run"]
    prepared.run("with watcherml.init('inner') as inner:\n    fail()")
    assert (prepared["inner"].status, outer.status) == ("failed", "running")
    assert len(prepared.store.evidence.failures()) == 1


def test_an_oom_that_the_cell_deals_with_is_one_line(notebook):
    source = f"{INIT.replace('run = ', 'with ')} as run:\n    raise RuntimeError({OOM!r})".replace("\n", "\n    ")
    outcome = notebook.run(f"try:\n    {source}\nexcept RuntimeError:\n    pass")
    assert outcome.error is None
    assert outcome.text.strip() == f"WatcherML: run {notebook['run'].run_id} failed in this cell and is on record."
    assert notebook.run("x = 1").shown == []


def test_an_oom_without_a_run_says_how_to_record_it(notebook, tmp_path):
    notebook["seen"], notebook["weakref"] = [], weakref
    outcome = notebook.run(f"{FAIL}\nfail()")
    assert "watcherml.init(config=" in outcome.text and "Gave back" in outcome.text
    assert notebook["seen"][0]() is None
    assert not (tmp_path / ".watcherml").exists()


def test_another_error_without_a_run_is_none_of_our_business(notebook):
    assert notebook.run("1 / 0").shown == []


# -- keeping the frames ----------------------------------------------------------------------------------------------


def test_frames_can_be_kept_and_let_go_later(prepared):
    prepared.run("%watcher keep-frames on")
    outcome = prepared.run("fail()")
    gc.collect()
    assert prepared["seen"][0]() is not None
    assert "%watcher free" in outcome.text and hasattr(sys, "last_value")
    freed = prepared.run("%watcher free").value
    assert prepared["seen"][0]() is None
    assert "Gave back" in freed.text()
    assert "no exception is remembered" in prepared.run("%watcher free").value.text()


def test_an_active_debugger_keeps_the_frames(prepared):
    # Only the session sees it: the shell itself would start the debugger and read from the terminal.
    Session.of(prepared.shell).shell = SimpleNamespace(call_pdb=True, user_ns=prepared.shell.user_ns)
    outcome = prepared.run("fail()")
    assert prepared["seen"][0]() is not None
    assert "%pdb is on" in outcome.text


def test_the_stack_can_be_kept_without_its_variables(prepared, capsys):
    prepared.run("%watcher keep-frames on")
    prepared.run("fail()")
    prepared.run("%watcher free --keep-stack")
    assert prepared["seen"][0]() is None
    capsys.readouterr()
    prepared.run("%tb")
    assert "in fail()" in re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)


# -- other errors ----------------------------------------------------------------------------------------------------


def test_a_typo_is_on_record_and_does_not_end_the_run(prepared):
    outcome = prepared.run("undefined_name")
    assert outcome.text.count("\n") <= 3 and "goes on" in outcome.text
    assert prepared.store.get_capsule(prepared["run"].run_id)["failure"]["exception_type"] == "NameError"
    prepared.run("run.log_metric('loss', 0.25, 1)\nrun.finish()")
    assert row(prepared)["status"] == "success"
    assert prepared.store.get_metrics(prepared["run"].run_id)[-1]["value"] == 0.25


def test_a_syntax_error_is_a_failed_cell_and_no_failure_of_the_run(prepared):
    outcome = prepared.run("def broken(:")
    assert outcome.shown == []
    assert prepared.store.evidence.failures() == []
    assert row(prepared)["status"] == "running"


def test_an_interruption_is_no_failure(prepared):
    outcome = prepared.run("raise KeyboardInterrupt")
    assert outcome.shown == []
    assert prepared.store.evidence.failures() == []
    assert row(prepared)["status"] == "running"


def test_a_misused_magic_is_no_failure_of_the_run(prepared):
    outcome = prepared.run("%watcher nonsense")
    assert type(outcome.error).__name__ == "UsageError"
    assert outcome.shown == []
    assert prepared.store.evidence.failures() == []


def test_a_known_failure_gets_its_whole_panel_and_the_run_goes_on(prepared):
    outcome = prepared.run("raise FileNotFoundError(2, 'No such file or directory', '/data/train')")
    assert "Evidence:" in outcome.text and "goes on" in outcome.text
    assert "%%watcher recover" not in outcome.text
    assert row(prepared)["status"] == "running"


# -- what must not happen --------------------------------------------------------------------------------------------


def test_hostile_text_is_shown_as_text(notebook):
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    notebook.run(f"import watcherml\nrun = watcherml.init({evil!r}, {{{evil!r}: {evil!r}}})")
    outcome = notebook.run(
        f"class Bad(Exception):\n    pass\nBad.__qualname__ = {evil!r}\nraise Bad({evil!r} + {OOM!r})"
    )
    folded = notebook.run(f"raise ValueError({evil!r})")
    assert "&lt;script&gt;" in outcome.html + folded.html
    for html in (outcome.html, folded.html):
        assert "<script" not in html and "<img src=x" not in html


def test_a_hook_that_breaks_costs_one_notice_and_no_cell(prepared, monkeypatch):
    from watcherml.notebook import failures

    def broken(*_, **__):
        raise OSError("disk on fire")

    monkeypatch.setattr(failures, "handle", broken)
    outcome = prepared.run("x = 41\nx + 1")
    assert (outcome.error, outcome.value) == (None, 42)
    assert "disk on fire" in outcome.text
    assert prepared.run("x").shown == []


def test_a_cell_that_ipython_itself_gave_up_is_survived(prepared):
    session = Session.of(prepared.shell)
    session.pre_run_cell(SimpleNamespace(raw_cell="%debug", cell_id=None))
    session.post_run_cell(None)
    assert session.cells.current is None and session.problems == []


def test_no_hook_of_the_shell_is_taken(prepared):
    assert prepared.shell.custom_exceptions == ()
    prepared.run("%unload_ext watcherml")
    assert prepared.run("fail()").shown == []


@pytest.mark.filterwarnings("ignore:WatcherML could not record")
def test_a_failure_that_cannot_be_captured_is_said(notebook, monkeypatch):
    from watcherml.api import record

    def broken(run, error):
        raise OSError("no space left")

    monkeypatch.setattr(record, "save_capsule", broken)
    notebook.run(INIT)
    outcome = notebook.run(f"raise RuntimeError({OOM!r})")
    assert "could not capture this failure" in outcome.text and "no space left" in outcome.text
    assert row(notebook)["status"] == "failed"
