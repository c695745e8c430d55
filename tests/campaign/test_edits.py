"""Edits while a campaign runs: of the workload they stop it, and nothing else does. Real trials, without torch."""

import sys

import pytest
from builders import FAILED_CONFIG, OOM_TEXT, TEXT_ENTRYPOINT

import watcherml
from watcherml.campaign.ledger import Ledger, Settings
from watcherml.campaign.run import CampaignRun
from watcherml.trials.runner import LocalExecutor

# Control, probe, full trial, confirmation: the first rung fits.
BUDGET = watcherml.RecoveryBudget(max_trials=4, max_probe_trials=2, max_full_trials=1)


class Editing(LocalExecutor):
    """Runs an edit right before the first trial of a role is started, when the one before it has measured itself."""

    def __init__(self, store, role, edit):
        super().__init__(store)
        self.role, self.edit = role, edit

    def submit(self, request, launch):
        if request.role == self.role and self.edit is not None:
            self.edit()
            self.edit = None
        super().submit(request, launch)


@pytest.fixture
def project(storage, tmp_path, monkeypatch):
    """A project with an entrypoint, data, a checkpoint, a notebook, and an installed distribution on the path."""
    (tmp_path / "ent.py").write_text(TEXT_ENTRYPOINT)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("one")
    (tmp_path / "notes.ipynb").write_text('{"cells": []}')
    install(tmp_path, "1.0")
    monkeypatch.syspath_prepend(tmp_path / "installed")
    import os

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "installed"), os.environ["PYTHONPATH"]]))
    return tmp_path


def install(folder, version):
    info = folder / "installed" / "tiny_edits.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tiny-edits\nVersion: {version}\n")


def recover(storage, project, role, edit):
    """Run a campaign with an edit before its first trial of a role, and return the verdict and the trials' roles."""
    run = watcherml.Run("demo", {**FAILED_CONFIG, "batch_size": 32}, storage, quiet=True)
    with pytest.raises(RuntimeError), run:
        run.set_dataset(project / "data")
        raise RuntimeError(OOM_TEXT)
    wanted = watcherml.VerificationRequirements(minimum_progress_steps=50, confirmation_runs=1)
    made = watcherml.prepare_oom_recovery(
        run.run_id, "ent:train", wanted, BUDGET, project_root=project, storage=storage
    )
    settings = Settings(str(project), sys.executable, str(project / "data"))
    ledger = Ledger.open_new(storage, "edited", made.plan, (), {}, settings)
    verdict = CampaignRun(ledger, Editing(storage.path, role, edit)).run()
    return verdict, [one.request.role for one in ledger.trials()]


EDITS = {
    "entrypoint": lambda folder: (folder / "ent.py").write_text(TEXT_ENTRYPOINT + "# edited\n"),
    "data": lambda folder: (folder / "data" / "a.txt").write_text("two, edited"),
    "packages": lambda folder: install(folder, "1.1"),
}
NAMED = {"entrypoint": "ent.py is", "data": "the data is", "packages": "the installed packages are"}
NAMED_BEFORE = {"entrypoint": "the code", "data": "the data", "packages": "the installed packages"}


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_between_full_trial_and_confirmation_stops_the_campaign_and_is_named(storage, project, what):
    verdict, roles = recover(storage, project, "confirmation", lambda: EDITS[what](project))
    assert (verdict.status, verdict.reason_code) == ("not_recovered", "workload_changed")
    assert roles == ["control", "probe", "full", "confirmation"]
    said = (
        f"The workload changed while the campaign ran: {NAMED[what]} not the same in edited-t03 (full) and edited-t04"
    )
    assert verdict.sentence.startswith(said), verdict.sentence


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_between_plan_and_control_stops_the_campaign_after_the_control(storage, project, what):
    verdict, roles = recover(storage, project, "control", lambda: EDITS[what](project))
    assert (verdict.status, verdict.reason_code) == ("stopped", "workload_differs") and roles == ["control"]
    assert f"run the failed run's workload: {NAMED_BEFORE[what]} (" in verdict.sentence


def test_a_notebook_that_saves_itself_and_a_new_checkpoint_change_nothing(storage, project):
    def save():
        (project / "notes.ipynb").write_text('{"cells": [], "metadata": {"saved": 2}}')
        (project / "checkpoints").mkdir()
        (project / "checkpoints" / "step-50.pt").write_bytes(b"weights")
        (project / ".ipynb_checkpoints").mkdir()
        (project / "unused.py").write_text("VALUE = 2\n")

    verdict, roles = recover(storage, project, "confirmation", save)
    assert verdict.status == "verified", verdict.sentence
    assert roles == ["control", "probe", "full", "confirmation"]


@pytest.mark.long
def test_a_package_that_takes_the_place_of_a_module_imported_late_is_an_edit(storage, project):
    (project / "ent.py").write_text(
        TEXT_ENTRYPOINT.replace("    time.sleep", "    import late_part\n    time.sleep", 1)
    )
    (project / "late_part.py").write_text("VALUE = 1\n")

    def refactor():
        (project / "late_part").mkdir()
        (project / "late_part" / "__init__.py").write_text("VALUE = 2\n")

    verdict, _ = recover(storage, project, "confirmation", refactor)
    assert (verdict.status, verdict.reason_code) == ("not_recovered", "workload_changed")
    assert "module late_part is not the same in" in verdict.sentence, verdict.sentence
