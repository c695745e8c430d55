"""In a real kernel of each generation: a failing cell leaves nothing alive, and what is said of it is true."""

import pytest
from matrix_environments import ENVIRONMENTS, stands_for
from matrix_shapes import BIG_BYTES, QUIET, SHAPES, SINCE

AFTER_CELL = "[counted[0], alive(), len(refs)]"


def test_the_environments_are_of_the_generations_that_they_stand_for(kernel, request):
    name = request.node.callspec.params["kernel"]
    found = kernel.value(
        "[*sys.version_info[:2], __import__('IPython').version_info[0], __import__('ipykernel').version_info[0],"
        " 'torch' in sys.modules]"
    )
    for one in ENVIRONMENTS:
        if one.name == name or (name == "this python" and stands_for(one)):
            assert found[:4] == [*(int(part) for part in one.python.split(".")), one.ipython, one.ipykernel]
    assert found[4] is False, "a kernel in which nobody trains loads no torch"


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_that_a_failed_cell_held_is_alive_afterwards(clean, shape):
    if SINCE.get(shape, (3, 0)) > tuple(clean.value("sys.version_info[:2]") if shape in SINCE else (3, 10)):
        pytest.skip("this Python has no such thing")
    cell = clean.run(SHAPES[shape])
    assert shape in QUIET or cell.status == "error"
    after_cell, later, made, problems, remembered = clean.value(
        f"[*{AFTER_CELL}, session.problems, hasattr(sys, 'last_value')]"
    )
    assert (made >= 2, after_cell, later) == (True, 0, 0)
    # Before version 8, IPython prints a group without its members.
    assert ("ExceptionGroup" if shape == "group" else "CUDA out of memory") in cell.text, "the traceback stays printed"
    assert "Gave back" in cell.text
    assert (problems, remembered) == ([], False)


@pytest.mark.parametrize("mode", ["Verbose", "Minimal"])
def test_the_way_in_which_tracebacks_are_printed_makes_no_difference(clean, mode):
    try:
        clean.run(f"%xmode {mode}")
        for shape in ("raise from", "class body at the top", "saved frame"):
            clean.run("fresh()")
            clean.run(SHAPES[shape])
            assert clean.value(AFTER_CELL)[:2] == [0, 0], shape
    finally:
        clean.run("%xmode Context")


def test_the_report_gives_the_bytes_that_came_back(clean):
    clean.run("outer()")
    before, after, cleared = clean.value(
        "[session.released.rss_before_bytes, session.released.rss_after_bytes, session.released.frames_cleared]"
    )
    # outer() holds two objects and fail() one; the second of outer() is also fail()'s argument.
    assert before - after > 2.5 * BIG_BYTES
    assert cleared >= 3


def test_a_variable_of_the_person_stays_and_is_named_with_its_bytes(clean):
    clean.run(f"model = bytearray({BIG_BYTES})\nrun = watcherml.init('named', {{}})")
    count = clean.run(f"bytearray({BIG_BYTES})").count
    cell = clean.run("outer()")
    kept = clean.value("[[one.name, one.bytes] for one in session.released.kept]")
    names = dict(kept)
    assert names.get("model", 0) >= BIG_BYTES, names
    output = next(name for name in names if name.startswith("Out["))
    assert output.split(",")[0] == f"Out[{count}]"
    assert "model" in cell.text and output.split(",")[0] in cell.text
    assert clean.value("len(model)") == BIG_BYTES
    # What the sentence advises does what it says.
    advice = clean.value("session.released.sentence")
    assert "`%xdel model` lets go" in advice or "`%reset -f out` lets go" in advice
    clean.run("%reset -f out")
    clean.run("%xdel model")
    clean.run("outer()")
    assert not any("model" in name or "Out[" in name for name in clean.value("[o.name for o in session.released.kept]"))
    clean.run("run.interrupt('the test is over')")


def test_kept_frames_stay_and_debug_walks_them(keeping):
    clean = keeping
    cell = clean.run("outer()")
    assert "%watcher free" in cell.text and "Gave back" not in cell.text
    assert clean.value("alive()") == 3
    debugged = clean.run("%debug", typed=["p type(local).__name__", "up", "p type(a).__name__ + 's'", "q"])
    assert "'Big'" in debugged.text and "'Bigs'" in debugged.text
    freed = clean.run("%watcher free")
    assert "Gave back" in freed.text
    assert clean.value("alive()") == 0
    assert clean.run("%debug", typed=["q"]).status == "ok"
    assert "no exception is remembered" in clean.run("%watcher free").text


def test_the_stack_can_be_kept_without_its_variables(keeping):
    clean = keeping
    clean.run("outer()")
    clean.run("%watcher free --keep-stack")
    assert clean.value("alive()") == 0
    assert "in fail(" in clean.run("%tb").text
    walked = clean.run("%debug", typed=["w", "q"])
    assert "outer()" in walked.text


def test_another_failure_keeps_its_frames_for_debug(clean):
    cell = clean.run("def wrong():\n    here = Big()\n    raise ValueError('not about memory')\nwrong()")
    assert cell.status == "error" and clean.value("alive()") == 1
    assert "'Big'" in clean.run("%debug", typed=["p type(here).__name__", "q"]).text
    clean.run("%watcher free")
    assert clean.value("alive()") == 0


def test_the_cells_are_on_record_with_order_duration_outcome_and_the_front_ends_name(clean):
    clean.run("run = watcherml.init('history', {})", metadata={"cellId": "first-cell"})
    clean.run("import time\ntime.sleep(0.05)", metadata={"cellId": "sleeps"})
    clean.run("undefined_name", metadata={"cellId": "typo"})
    rows = clean.value(
        "(session.flush(), [[c['cell_id'], c['status'], c['error_type'], c['seconds'], c['seq']]"
        " for c in run.storage.evidence.cells(run_id=run.run_id)])[1]"
    )
    named = {row[0]: row for row in rows}
    assert [row[4] for row in rows] == sorted(row[4] for row in rows)
    assert named["first-cell"][1] == "ok"
    assert named["sleeps"][1] == "ok" and 0.05 <= named["sleeps"][3] < 5
    assert named["typo"][1:3] == ["error", "NameError"]
    assert clean.value("run.status") == "running"
    clean.run("run.finish()")


def test_a_failure_without_a_run_is_put_on_record_afterwards(clean):
    clean.run("settings = {'batch_size': 32, 'nested': {'lr': 0.1}}")
    told = clean.run("outer()")
    assert "%watcher capture" in told.text and "CUDA ran out of memory" in told.text
    assert clean.value("alive()") == 0
    shown = clean.run("%watcher capture --config settings --project later")
    assert shown.status == "ok" and "on record now" in shown.text, shown.text
    run_id, capsule = clean.value(
        "(lambda run_id, store: [run_id, {key: store.get_capsule(run_id)[key]"
        " for key in ('failure', 'evidence', 'project')}])(*session.recorded)"
    )
    assert run_id.startswith("later-") and capsule["project"] == "later"
    assert capsule["failure"]["class"] == "cuda_out_of_memory" and "in outer" in capsule["failure"]["traceback"]
    config = next(piece for piece in capsule["evidence"] if piece["id"] == "EV-1")
    assert config["data"]["config"] == {"batch_size": 32, "nested": {"lr": 0.1}}
    cells = next(piece for piece in capsule["evidence"] if piece["id"] == "EV-11")
    assert cells["data"][-1]["source"] == "outer()" and cells["data"][-1]["status"] == "error"
