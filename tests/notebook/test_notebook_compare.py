"""What a notebook says after a failure about the time when it last worked, and ``%watcher compare``."""

from notebook_shell import CONFIG, OOM

GOOD = f"""import watcherml
with watcherml.Run('demo', {CONFIG!r}, quiet=True) as good:
    good.log({{'loss': 1.0}}, step=1)"""
STEP = "def step(batch):\n    scale = 2\n    return batch * scale"


def fail(notebook, **changes):
    """Run a cell that fails in a run of its own, and return what was shown."""
    return notebook.run(
        f"bad = watcherml.init('demo', { ({**CONFIG, **changes})!r})\nraise RuntimeError({OOM!r})",
    )


def test_the_panel_says_what_changed_since_it_last_worked(notebook):
    notebook.run(GOOD)
    shown = fail(notebook, batch_size=512)
    assert "Since it last worked: batch_size 32 → 512." in " ".join(shown.text.split())
    assert "Since it last worked: batch_size 32 → 512." in shown.html
    assert notebook["good"].run_id in shown.text


def test_an_edited_cell_is_among_what_changed(notebook):
    notebook.run("import watcherml\ngood = watcherml.init('demo', {'batch_size': 8})")
    notebook.run(STEP)
    notebook.run("good.finish()")
    notebook.run("bad = watcherml.init('demo', {'batch_size': 8})")
    notebook.run(STEP.replace("scale = 2", "scale = 200"))
    notebook.run(f"raise RuntimeError({OOM!r})")
    capsule = notebook.store.get_capsule(notebook["bad"].run_id)
    changed = {one["path"]: one for one in capsule["neighbours"]["nearest"]["difference"]["changes"]}
    assert len([one for one in changed.values() if one["area"] == "cells"]) == 1, "not the one that begins the run"
    cell = changed["cell 'def step(batch):'"]
    assert (cell["area"], cell["before"], cell["after"]) == ("cells", "scale = 2", "scale = 200")


def test_compare_shows_two_runs_and_the_value_has_a_face(notebook):
    notebook.run(GOOD)
    fail(notebook, batch_size=512)
    good, bad = notebook["good"].run_id, notebook["bad"].run_id
    panel = notebook.run(f"%watcher compare {good} {bad}").value
    assert "batch_size 32 → 512" in panel.text() and "wml-compare" in panel.html()
    value = notebook.run(f"from watcherml.api.compare import compare\ncompare(watcherml.Storage(), {good!r}, {bad!r})")
    assert value.error is None
    bundle = notebook.shell.display_formatter.format(value.value)[0]
    assert "wml-compare" in bundle["text/html"] and "batch_size" in bundle["text/plain"]


def test_compare_refuses_what_is_no_pair(notebook):
    for words, found in (("", "nothing"), ("one", "one"), ("a b c", "a b c")):
        error = notebook.run(f"%watcher compare {words}").error
        assert type(error).__name__ == "UsageError" and "two run ids" in str(error) and found in str(error)
