"""The example notebook, from its first cell to its last, in a real kernel."""

from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "notebooks" / "01_recover_an_oom.ipynb"


def cell_starting(notebook, text):
    return next(cell for cell in notebook.cells if cell.source.startswith(text))


def test_the_notebook_shows_the_very_code_that_the_demo_runs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    shown = cell_starting(notebook, "%%writefile char_gpt.py").source.split("\n", 1)[1]
    assert shown.strip() == (ROOT / "watcherml" / "cli" / "demo_char_gpt.py").read_text("utf-8").strip()


def test_the_notebook_is_committed_without_outputs_or_machine_paths():
    text = NOTEBOOK.read_text("utf-8")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells)
    assert not any(word in text for word in ("/home/", "/root/", "/Users/", "C:\\\\"))


@pytest.fixture(scope="module")
def executed(tmp_path_factory, run_notebook):
    """The notebook with its outputs, and the folder it ran in."""
    folder = tmp_path_factory.mktemp("notebook01")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        return run_notebook(notebook, folder, timeout=900), folder


def outputs(notebook, start):
    return cell_starting(notebook, start).outputs


def html(outs):
    return "\n".join(out["data"].get("text/html", "") for out in outs if "data" in out)


def plain(outs):
    return "\n".join(out["data"].get("text/plain", "") for out in outs if "data" in out)


def test_the_story_ends_verified_on_the_simulated_device(executed):
    notebook, _ = executed
    failed = outputs(notebook, "with device():\n    char_gpt.train(config")
    assert any(out.output_type == "error" and out.ename == "SimulatedOutOfMemoryError" for out in failed)
    panel = html(failed)
    assert "simulated" in panel and "MiB were asked for" in panel
    assert "verified_recovery" in plain(outputs(notebook, "recovery.start()"))
    told = "".join(out.get("text", "") for out in outputs(notebook, "print(result.sentence)"))
    assert told.startswith("Verified on the simulated device")
    assert "image/png" in outputs(notebook, "import matplotlib")[-1]["data"]
    # Nothing but the failing cell failed.
    errors = [cell for cell in notebook.cells if any(o.output_type == "error" for o in cell.get("outputs", []))]
    assert len(errors) == 1


def test_what_it_recorded_is_on_record(executed):
    from watcherml import RecoveryResult, Storage

    _, folder = executed
    storage = Storage(folder / ".watcherml")
    statuses = [row["status"] for row in storage.list_runs()]
    assert statuses == ["success", "failed"]
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
    assert any("char_gpt.train(config" in cell["source"] and cell["status"] == "error" for cell in cells)
