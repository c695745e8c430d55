"""The panel of a run: live while it goes on, still once it has ended, and never in the way of training."""

import threading

import pytest
from notebook_shell import wait_for

import watcherml
from watcherml.notebook.panels import run as run_module
from watcherml.notebook.panels.run import RunPanel, run_panel
from watcherml.report.curves import Curve
from watcherml.report.html_live import small_table
from watcherml.report.units import format_number

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def run(storage):
    made = watcherml.init("demo", {"lr": 0.1}, storage)
    yield made
    if made.status == "running":
        made.finish()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(run_module, "LOOK_SECONDS", 0.01)


def head(panel):
    return panel.view().children[0].value


def curves(panel):
    return panel.view().children[1].value


def test_it_follows_a_run_to_its_end(run, quick):
    panel = run_panel(run)
    assert "is going on" in head(panel) and panel.following
    run.log_metric("loss", 0.125, 3)
    wait_for(lambda: "0.125" in head(panel))  # at once, and not with the recorder's next heartbeat
    wait_for(lambda: "step 3" in head(panel))
    run.finish()
    wait_for(lambda: "finished" in head(panel))
    wait_for(lambda: not panel.following)
    assert "loss" in curves(panel) and "data:image/svg+xml;base64," in curves(panel)
    assert "MiB" in curves(panel)  # memory with its unit
    assert "watcherml-run-panel" not in [one.name for one in threading.enumerate()]


def test_it_is_updated_four_times_a_second_at_most():
    assert run_module.LOOK_SECONDS >= 0.25


def test_shown_twice_a_run_has_one_panel_and_one_thread(run, quick):
    panel = run_panel(run)
    panel.view()
    assert run_panel(run) is panel and panel.follow() is panel
    assert [one.name for one in threading.enumerate()].count("watcherml-run-panel") == 1


def test_without_a_kernel_it_is_a_picture_and_no_thread(run):
    run.log_metric("loss", 0.5, 1)
    bundle = run._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert "is going on" in bundle["text/plain"] and 'class="wml-run"' in bundle["text/html"]
    assert "run.finish()" in bundle["text/plain"]
    assert not run_panel(run).following


def test_a_run_of_another_process_is_followed_in_its_store(run, storage, quick):
    panel = RunPanel(storage, run.run_id)
    assert "is going on" in head(panel)
    run.finish()
    wait_for(lambda: "finished" in head(panel))


def test_a_store_that_cannot_be_read_ends_the_panel_and_not_the_run(run, quick, monkeypatch):
    monkeypatch.setattr(run_module, "_PATIENCE", 3)
    panel = RunPanel(run.storage, run.run_id, run)
    monkeypatch.setattr(panel, "_row", lambda: 1 / 0)
    assert "is going on" in head(panel)
    wait_for(lambda: not panel.following)
    run.log_metric("loss", 0.5, 1)
    run.finish()
    assert run.status == "success" and run.problem_count == 0
    assert "is going on" in panel.text()  # what was seen last


def test_hostile_and_many_names_are_shown_as_text(storage):
    with watcherml.init(EVIL, {EVIL: EVIL}, storage) as run:
        for number in range(30):
            run.log_metric(f"{EVIL}{number}", float("nan") if number == 3 else number, 1)
        html = RunPanel(storage, run.run_id, run).html()
    html += RunPanel(storage, run.run_id, run).html()
    assert "<script" not in html and "&lt;script&gt;" in html
    assert "not finite" in html and "18 more metrics" in html


def test_a_number_is_never_broken_into_two():
    curve = Curve("loss", "step", ((1.0, -1.234567e-05),), format_number)
    assert small_table("Metric", [curve]).count('white-space:nowrap">-1.23457e-05</div>') == 3


def test_gpus_are_shown_with_what_this_process_and_everybody_holds():
    from watcherml.report.html_live import gpu_curves

    gib = 2**30
    readings = [
        {"at": 5.0 + at, "gpu_index": 0, "used_bytes": used * gib, "own_bytes": own, "total_bytes": 8 * gib}
        for at, used, own in ((0, 4, gib), (1, 6, None))
    ]
    mine, all_of_it = gpu_curves(readings)
    assert (mine.name, mine.points, mine.level) == ("GPU 0, this process", ((0.0, float(gib)),), None)
    assert (all_of_it.name, all_of_it.last, all_of_it.level) == ("GPU 0, everybody", 6.0 * gib, 8.0 * gib)
