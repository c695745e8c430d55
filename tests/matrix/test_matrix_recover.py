"""In a real kernel of each generation: a failed run is recovered through its panel, by a click and by calls."""

from matrix_shapes import OOM

WIDGET = "application/vnd.jupyter.widget-view+json"
CONFIG = {"batch_size": 32, "gradient_accumulation_steps": 1, "training_steps": 40}
# No torch in these environments: a function that runs out of memory as far as its text goes.
RECOVER = f"""%%watcher recover --metric val_loss:minimize:0.42:0.03 --max-probe-trials 2 --confirmation-runs 1
def train(config, max_steps=None):
    steps = min(max_steps or config["training_steps"], config["training_steps"])
    if config["batch_size"] > 16:
        raise RuntimeError({OOM!r})
    return {{"steps_completed": steps, "val_loss": 0.4}}
"""


def test_a_failed_run_is_recovered_through_its_panel(clean):
    clean.run(f"failing = watcherml.init('matrix', {CONFIG!r})")
    failed = clean.run("outer()")
    assert failed.status == "error" and "Gave back" in failed.text
    assert {"text/plain", "text/html"} <= set(failed.shown[-1])

    shown = clean.run(RECOVER)
    assert shown.status == "ok", shown.text
    panel = shown.shown[-1]
    assert {"text/plain", "text/html", WIDGET} <= set(panel)
    view = clean.widgets[panel[WIDGET]["model_id"]]
    assert view["_model_name"] == "VBoxModel" and "recovery.start()" in panel["text/plain"]
    assert clean.value("recovery.campaign is None"), "nothing runs before Start"

    clean.click(clean.widget("wml-start"))
    clean.wait_until("recovery.campaign")
    waited = clean.run("recovery.start()\nresult = recovery.wait(50)\nrecovery")
    assert waited.status == "ok", waited.text
    status, kind, config, trials = clean.value(
        "[result.status, result.device_kind, result.verified_config,"
        " [[t.request.role, t.result.outcome] for t in result.trials]]"
    )
    assert (status, kind) == ("verified", "none"), waited.text
    assert config["batch_size"] * config["gradient_accumulation_steps"] == 32 and config["batch_size"] <= 16
    assert trials == [["control", "oom"], ["probe", "completed"], ["full", "completed"], ["confirmation", "completed"]]
    assert "Verified" in waited.shown[-1]["text/plain"] and WIDGET not in waited.shown[-1]
    # What was live is replaced in every output that shows it, in a front end that has followed the names of outputs.
    clean.wait_until(f"'{WIDGET}' not in recovery._repr_mimebundle_()")
    for output in clean.outputs.values():
        assert set(output) == {"text/plain", "text/html"}, output["text/plain"]
        assert "Verified" in output["text/plain"] or "failed" in output["text/plain"]
    assert clean.outputs, "the plan's cell"
    assert clean.value("session.problems") == []


def test_what_was_recovered_is_found_again_and_the_panels_have_their_faces(clean):
    """After the test above: the lists and the campaign by its id, each with a text, a page and no error."""
    for line in ("%watcher runs", "%watcher failures", "%watcher recoveries", "%watcher status", "%watcher recovery"):
        cell = clean.run(line)
        assert cell.status == "ok", cell.text
        assert {"text/plain", "text/html"} <= set(cell.shown[-1]), line
    assert "Verified" in cell.shown[-1]["text/plain"]
