"""``%watcher capture``: the last failure is put on record if nothing has done so."""

import gc
import sys
import weakref

import pytest
from notebook_shell import INIT, OOM, TRAIN

FAIL = f"""
class Big:
    pass
def fail():
    big = Big()
    seen.append(weakref.ref(big))
    raise RuntimeError({OOM!r})
"""
CONFIG = {"batch_size": 32, "gradient_accumulation_steps": 1, "training_steps": 6}


@pytest.fixture
def ready(notebook):
    notebook["seen"], notebook["weakref"], notebook["config"] = [], weakref, dict(CONFIG)
    notebook.run(FAIL)
    return notebook


def refusal(outcome):
    assert type(outcome.error).__name__ == "UsageError", outcome.error
    return str(outcome.error)


def capsule(notebook):
    (failure,) = notebook.store.evidence.failures()
    return notebook.store.get_capsule(failure["run_id"])


def piece(found, name):
    return next(one for one in found["evidence"] if one["id"] == name)


def test_an_oom_without_a_run_gives_its_memory_back_and_can_be_recovered_afterwards(ready, tmp_path):
    told = ready.run("fail()")
    assert "CUDA ran out of memory" in told.text and "Gave back" in told.text
    assert ready["seen"][0]() is None and not (tmp_path / ".watcherml").exists()
    ready.run("x = 1")
    panel = ready.run("%watcher capture --config config --project later").value
    found = capsule(ready)
    assert found["failure"]["class"] == "cuda_out_of_memory" and "in fail" in found["failure"]["traceback"]
    assert found["memory"]["requested_bytes"] == 20 * 2**20
    run = ready.store.get_run(found["run_id"])
    assert (run["status"], run["project"], run["end_reason"]) == ("failed", "later", "RuntimeError")
    assert piece(found, "EV-1")["data"]["config"] == CONFIG
    assert piece(found, "EV-8")["status"] == "present", "packages are read when the person asks"
    assert piece(found, "EV-10")["reason"] == "No run was open at the failure."
    assert [cell["source"] for cell in piece(found, "EV-11")["data"]][-1] == "fail()"
    assert found["completeness"]["present"] == sum(one["status"] == "present" for one in found["evidence"])
    for face in (panel.text(), panel.html()):
        assert found["run_id"] in face and "%%watcher recover" in face
    planned = ready.run(f"%%watcher recover\n{TRAIN}").value
    assert planned.plan.source.run_id == found["run_id"]


def test_capturing_again_shows_the_same_run(ready):
    ready.run("fail()")
    ready.run("%watcher capture")
    assert "was on record already" in ready.run("%watcher capture").value.text()
    assert len(ready.store.evidence.failures()) == 1


@pytest.mark.parametrize("loaded_late", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_configuration_named_later_gives_the_failure_another_run_and_no_third(plain_shell, loaded_late):
    plain_shell["seen"], plain_shell["weakref"], plain_shell["config"] = [], weakref, dict(CONFIG)
    plain_shell.run(FAIL)
    for line in ["fail()", "%load_ext watcherml"] if loaded_late else ["%load_ext watcherml", "fail()"]:
        plain_shell.run(line)
    assert "%watcher capture --config NAME" in plain_shell.run("%watcher capture").value.text()
    bare = capsule(plain_shell)
    told = plain_shell.run("%watcher capture --config config").value.text()
    open_ones = plain_shell.store.evidence.failures(unresolved=True)
    (found,) = [plain_shell.store.get_capsule(row["run_id"]) for row in open_ones]
    assert found["run_id"] != bare["run_id"] and found["run_id"] in told and bare["run_id"] in told
    assert piece(found, "EV-1")["data"]["config"] == CONFIG and piece(bare, "EV-1")["data"]["config"] == {}
    assert (found["failure"], found["memory"]) == (bare["failure"], bare["memory"])
    assert plain_shell.run(f"%%watcher recover\n{TRAIN}").value.plan.source.run_id == found["run_id"]
    assert "is not on record" in refusal(plain_shell.run("%watcher capture --config config"))
    assert len(plain_shell.store.evidence.failures()) == 2


def test_a_failure_of_an_open_run_is_on_record_already(ready):
    ready.run(INIT)
    ready.run("fail()")
    assert ready["run"].run_id in ready.run("%watcher capture").value.text()
    assert len(ready.store.evidence.failures()) == 1


def test_any_error_can_be_captured_and_keeps_its_frames(ready):
    assert ready.run("def f():\n    big = Big()\n    seen.append(weakref.ref(big))\n    1 / 0\nf()").shown == []
    gc.collect()
    assert ready["seen"][0]() is not None
    ready.run("%watcher nonsense")
    ready.run("%watcher capture")
    assert capsule(ready)["failure"]["exception_type"] == "ZeroDivisionError"
    assert ready["seen"][0]() is not None, "%debug still has something to walk"


def test_the_last_failure_counts(ready):
    ready.run("fail()")
    ready.run("{}['key']")
    ready.run("%watcher capture")
    assert capsule(ready)["failure"]["exception_type"] == "KeyError"


def test_a_failure_from_before_the_extension_was_loaded_is_captured_and_released(plain_shell):
    plain_shell["seen"], plain_shell["weakref"] = [], weakref
    plain_shell.run(FAIL)
    plain_shell.run("fail()")
    assert plain_shell.run("%load_ext watcherml").shown == []
    assert plain_shell["seen"][0]() is not None, "nobody has asked yet"
    panel = plain_shell.run("%watcher capture").value
    found = capsule(plain_shell)
    assert found["failure"]["class"] == "cuda_out_of_memory" and "in fail" in found["failure"]["traceback"]
    assert plain_shell["seen"][0]() is None and not hasattr(sys, "last_value")
    assert "Gave back" in panel.text() and plain_shell.store.get_run(found["run_id"])["status"] == "failed"


def test_a_run_that_was_open_before_the_extension_was_loaded_gets_the_failure_of_its_cell(plain_shell):
    plain_shell["seen"], plain_shell["weakref"], plain_shell["config"] = [], weakref, dict(CONFIG)
    plain_shell.run(FAIL)
    plain_shell.run(INIT)
    plain_shell.run("fail()")
    plain_shell.run("%load_ext watcherml")
    assert "Gave back" in plain_shell.run("%watcher capture").text
    (row,) = plain_shell.store.list_runs()
    assert (row["run_id"], row["status"]) == (plain_shell["run"].run_id, "failed")
    assert capsule(plain_shell)["run_id"] == row["run_id"] and plain_shell["seen"][0]() is None


def test_a_configuration_for_the_failure_of_an_open_run_is_refused_and_the_failure_recorded(plain_shell):
    plain_shell["seen"], plain_shell["weakref"], plain_shell["config"] = [], weakref, dict(CONFIG)
    plain_shell.run(FAIL)
    plain_shell.run(INIT)
    plain_shell.run("fail()")
    plain_shell.run("%load_ext watcherml")
    refused = plain_shell.run("%watcher capture --config config")
    assert plain_shell["run"].run_id in refusal(refused) and "Gave back" in refused.text
    assert capsule(plain_shell)["run_id"] == plain_shell["run"].run_id


@pytest.mark.parametrize("line", ["captur", "capture --config confg"])
def test_a_mistyped_magic_does_not_cost_the_failure_from_before_the_extension(plain_shell, line):
    plain_shell["seen"], plain_shell["weakref"], plain_shell["config"] = [], weakref, dict(CONFIG)
    plain_shell.run(FAIL)
    plain_shell.run("fail()")
    plain_shell.run("%load_ext watcherml")
    assert refusal(plain_shell.run(f"%watcher {line}")) and not plain_shell.store.exists
    panel = plain_shell.run("%watcher capture --config config").value
    found = capsule(plain_shell)
    assert "in fail" in found["failure"]["traceback"] and piece(found, "EV-1")["data"]["config"] == CONFIG
    assert "Gave back" in panel.text() and plain_shell["seen"][0]() is None


def test_reloading_the_extension_keeps_the_failure_that_is_not_on_record(ready):
    ready.run("fail()")
    ready.run("%reload_ext watcherml")
    ready.run("%watcher capture --config config")
    assert "in fail" in capsule(ready)["failure"]["traceback"]


def test_what_failed_while_the_extension_was_unloaded_is_the_last_failure(ready):
    ready.run("fail()")
    ready.run("%unload_ext watcherml")
    ready.run("1 / 0")
    ready.run("%load_ext watcherml")
    ready.run("%watcher capture --config config")
    assert "ZeroDivisionError" in capsule(ready)["failure"]["exception_type"]


def test_the_failure_of_a_callback_counts_and_not_an_older_one_that_is_on_record(ready):
    ready.run(INIT)
    ready.run("1 / 0")
    try:
        raise RuntimeError(OOM)
    except RuntimeError:
        ready.shell.showtraceback()  # as ipywidgets does for a callback: no cell ends with it
    ready.run("%watcher capture")
    ready.flush()
    assert ready["run"].status == "failed"
    assert ready.store.get_capsule(ready["run"].run_id)["failure"]["class"] == "cuda_out_of_memory"


def test_a_run_that_was_opened_after_a_failure_does_not_get_it(plain_shell):
    plain_shell["seen"], plain_shell["weakref"] = [], weakref
    plain_shell.run(FAIL)
    plain_shell.run("fail()")
    plain_shell.run(INIT)
    plain_shell.run("%load_ext watcherml")
    plain_shell.run("%watcher capture")
    assert capsule(plain_shell)["run_id"] != plain_shell["run"].run_id


def test_without_a_failure_there_is_nothing_to_capture(ready, tmp_path):
    assert "no failure" in refusal(ready.run("%watcher capture"))
    ready.run("raise KeyboardInterrupt")
    ready.run("def broken(:")
    assert "no failure" in refusal(ready.run("%watcher capture")), "neither is a failure of a program"
    assert not (tmp_path / ".watcherml").exists()


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("--config nobody", "nobody"),
        ("--config text", "a str"),
        ("--config", "--config"),
        ("--wat", "--wat"),
        ("'open", "balanced quotes"),
    ],
)
def test_flags_that_name_no_configuration_are_refused_and_the_failure_is_kept(ready, line, named):
    ready["text"] = "words"
    ready.run("fail()")
    assert named in refusal(ready.run(f"%watcher capture {line}"))
    ready.run("%watcher capture --config config")
    assert capsule(ready)["failure"]["class"] == "cuda_out_of_memory"


def test_a_store_that_cannot_be_written_keeps_the_failure_for_later(ready, tmp_path):
    (tmp_path / ".watcherml").mkdir()
    database = tmp_path / ".watcherml" / "watcherml.db"
    database.write_bytes(b"something else" * 100)
    ready.run("fail()")
    with pytest.warns(RuntimeWarning, match="could not record"):
        assert refusal(ready.run("%watcher capture"))
    database.unlink()
    ready.run("%watcher capture")
    assert capsule(ready)["failure"]["class"] == "cuda_out_of_memory"


# -- what a cell printed and did not raise ----------------------------------------------------------------------------


def test_an_error_that_a_magic_prints_and_swallows_is_a_failure(ready, tmp_path):
    (tmp_path / "script.py").write_text(f"raise RuntimeError({OOM!r})\n")
    ready.run(INIT)
    outcome = ready.run("%run script.py")
    assert outcome.error is None and "CUDA ran out of memory" in outcome.text
    assert ready["run"].status == "failed" and not hasattr(sys, "last_value")
    row = ready.store.evidence.cells()[-1]
    assert (row["status"], row["error_type"]) == ("error", "RuntimeError")
    assert ready.run("x = 1").shown == []


def test_printing_the_same_traceback_again_is_no_second_failure(ready):
    ready.run(INIT)
    ready.run("1 / 0")
    ready.run("%tb")
    ready.run("%xmode Plain")
    ready.run("%tb")
    ready.run("%xmode Context")
    assert len(ready.store.evidence.failures()) == 1
    assert ready.store.evidence.cells()[-1]["status"] == "ok"


def test_what_a_magic_catches_is_shown_below_the_cell(ready):
    ready.run(INIT)
    outcome = ready.run("%%capture caught\nfail()")
    assert "CUDA ran out of memory" in outcome.text and "Gave back" in outcome.text
    assert ready["seen"][0]() is None
    assert len(ready.store.evidence.failures()) == 1


def test_kept_frames_of_an_inner_cell_are_told_of_once(ready):
    ready.run("%watcher keep-frames on")
    ready.run(INIT)
    outcome = ready.run("%%capture caught\nfail()")
    assert outcome.html.count('class="wml-failure"') == 1
    assert len(ready.store.evidence.failures()) == 1 and ready["seen"][0]() is not None
    ready.run("%watcher free")
