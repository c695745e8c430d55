"""The first notebook, from its first cell to its last, in a real kernel."""

import pytest
from example_notebooks import ROOT, cell, failed, kinds, named, read, run, shown

from watcherml import RecoveryResult, Storage

NAME = named("01")
FAILING = "with device():\n    char_gpt.train(config"


def test_the_notebook_shows_the_very_code_that_the_demo_runs():
    written = cell(read(NAME), "%%writefile char_gpt.py").source.split("\n", 1)[1]
    assert written.strip() == (ROOT / "watcherml" / "cli" / "demo_char_gpt.py").read_text("utf-8").strip()


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The notebook with its outputs, and the folder it ran in."""
    folder = tmp_path_factory.mktemp("notebook01")
    return run(NAME, folder), folder


def test_the_story_ends_verified_on_the_simulated_device(executed):
    notebook, _ = executed
    first = cell(notebook, FAILING)
    assert any(out.output_type == "error" and out.ename == "SimulatedOutOfMemoryError" for out in first.outputs)
    panel = shown(first, "text/html")
    assert "simulated" in panel and "MiB were asked for" in panel
    assert "verified_recovery" in shown(cell(notebook, "recovery.start()"))
    assert shown(cell(notebook, "print(result.sentence)")).startswith("Verified on the simulated device")
    assert "image/png" in cell(notebook, "import matplotlib").outputs[-1]["data"]
    assert failed(notebook) == [first], "nothing but the failing cell failed"


def test_the_committed_outputs_are_of_the_kinds_that_the_committed_code_gives(executed):
    notebook, _ = executed
    for old, new in zip(read(NAME).cells, notebook.cells, strict=True):
        if old.cell_type == "code":
            assert kinds(old) == kinds(new), old.source


def test_what_it_recorded_is_on_record(executed):
    _, folder = executed
    storage = Storage(folder / ".watcherml")
    assert [row["status"] for row in storage.list_runs()] == ["success", "failed"]
    campaign = storage.audit.campaigns()[0]
    result = RecoveryResult.of_campaign(campaign["campaign_id"], storage)
    assert result.verified and result.device_kind == "simulated"
    budget = 96 * 2**20
    for trial in result.trials:
        peak = trial.result.peak.compared_bytes
        assert trial.result.device.kind == "simulated" and 0 < peak <= budget
    good = storage.list_runs()[0]
    assert good["config"] == result.verified_config
    losses = [point["value"] for point in storage.get_metrics(good["run_id"], ["train_loss"])]
    assert len(losses) >= 20 and losses[-1] < losses[0] - 1
    cells = storage.evidence.cells()
    assert any("char_gpt.train(config" in one["source"] and one["status"] == "error" for one in cells)
