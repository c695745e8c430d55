"""Every public value shows itself, without the extension too; and what this store cannot stand for says whose it is."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from builders import FAILED_CONFIG, OOM_TEXT, TEXT_ENTRYPOINT

import watcherml
from watcherml.api import archive, data
from watcherml.api.compare import compare
from watcherml.notebook.panels.verdict import claim_page
from watcherml.store.storage import Storage

OLD = Path(__file__).resolve().parents[1] / "data" / "store-0.1"
OLD_VERIFIED = "recovery-c6276c2dd5d1"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A verified campaign in a store: (run, preparation, campaign, result)."""
    folder = tmp_path_factory.mktemp("faces")
    printing = TEXT_ENTRYPOINT.replace(
        "(config, max_steps=None):\n", "(config, max_steps=None):\n    print('hello <b>')\n"
    )
    assert printing != TEXT_ENTRYPOINT
    (folder / "ent.py").write_text(printing)
    storage = Storage(folder / ".watcherml")
    with watcherml.Run("demo", FAILED_CONFIG, storage, run_id="the-other", quiet=True):
        pass
    run = watcherml.Run("demo", {**FAILED_CONFIG, "batch_size": 32}, storage, quiet=True)
    with pytest.raises(RuntimeError):
        with run:
            raise RuntimeError(OOM_TEXT)
    wanted = watcherml.VerificationRequirements(minimum_progress_steps=50, confirmation_runs=1)
    budget = watcherml.RecoveryBudget(max_probe_trials=2, max_full_trials=1)
    preparation = watcherml.prepare_oom_recovery(
        run.run_id, "ent:train", wanted, budget, project_root=folder, storage=storage
    )
    campaign = watcherml.start_recovery(preparation, project_root=folder)
    return run, preparation, campaign, campaign.wait(60)


def test_every_public_value_has_a_face_of_text_and_of_html(finished):
    run, preparation, campaign, result = finished
    storage = run.storage
    values = {
        "run": (run, "failed", "wml-failure"),
        "capsule": (data.capsule(storage, run.run_id), "CUDA ran out of memory", "wml-failure"),
        "plan": (preparation.plan, "may run", "Predicted peak"),
        "preparation": (preparation, "may run", "Predicted peak"),
        "campaign": (campaign, "Verified", "wml-verdict"),
        "result": (result, "Verified", "wml-verdict"),
        "verdict": (result.verdict, "says", "wml-notice"),
        "comparison": (compare(storage, run.run_id, "the-other"), "", "wml-compare"),
    }
    for name, (value, words, markup) in values.items():
        bundle = value._repr_mimebundle_()
        assert set(bundle) == {"text/plain", "text/html"}, name
        assert words in bundle["text/plain"] and markup in bundle["text/html"], name
        assert value._repr_html_() == bundle["text/html"], name
        assert "object at 0x" not in bundle["text/plain"], name


def test_a_shell_without_the_extension_shows_them(finished, plain_shell):
    plain_shell["result"] = finished[-1]
    outcome = plain_shell.run("result")
    bundle, _ = plain_shell.shell.display_formatter.format(outcome.value)
    assert "wml-verdict" in bundle["text/html"] and "Verified" in bundle["text/plain"]


def test_without_ipython_a_value_has_its_faces_all_the_same(tmp_path):
    code = (
        "import sys, watcherml\n"
        "run = watcherml.Run('demo', {}, sys.argv[1], quiet=True).start()\n"
        "assert 'is going on' in run._repr_html_()\n"
        "run.finish()\n"
        "assert 'finished' in run._repr_html_()\n"
        "assert 'IPython' not in sys.modules and 'ipywidgets' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "store")], check=True, cwd=tmp_path)


def test_a_verdict_shows_what_each_trial_printed(finished):
    html = finished[-1]._repr_html_()
    assert html.count("What it printed, last") == len(finished[-1].trials)
    assert "hello &lt;b&gt;" in html and "hello <b>" not in html


# -- what this store cannot stand for --------------------------------------------------------------------------------


def test_an_imported_campaign_is_verified_elsewhere(finished, notebook, tmp_path):
    run, _, campaign, _ = finished
    sent = archive.export_run(run.run_id, tmp_path / "run.zip", storage=run.storage)
    archive.import_run(sent.path, storage=notebook.store)
    for page in (
        notebook.run(f"%watcher recovery {campaign.campaign_id}").value,
        notebook.run("%watcher recovery").value,
        claim_page(notebook.store, campaign.campaign_id),
    ):
        assert "elsewhere, not by this store" in page.text() and "elsewhere, not by this store" in page.html()
    inspected = notebook.run(f"%watcher inspect {run.run_id}").value
    for face in (inspected.text(), inspected.html()):
        assert "recorded elsewhere, not by this store" in " ".join(face.split())
        assert "%%watcher recover" not in face
    result = archive.imported_result(notebook.store, campaign.campaign_id)
    assert "elsewhere" in result._repr_html_() and "elsewhere" in result._repr_mimebundle_()["text/plain"]


def test_a_campaign_of_this_store_is_no_claim(finished):
    run, _, campaign, _ = finished
    assert claim_page(run.storage, campaign.campaign_id) is None
    assert claim_page(run.storage, None) is None
    assert claim_page(run.storage, "nothing-here") is None


def test_a_store_of_the_first_version_shows_its_claims(notebook, tmp_path, monkeypatch):
    shutil.copytree(OLD, tmp_path / "old")
    monkeypatch.setenv("WATCHERML_DIR", str(tmp_path / "old"))
    claimed = notebook.run(f"%watcher recovery {OLD_VERIFIED}").value
    for face in (claimed.text(), claimed.html()):
        assert "0.1" in face and "Verified on" not in face
    assert "claim" in claimed.text().lower()
    assert notebook.run("%watcher recovery").value.text()
    for row in data.runs(Storage(tmp_path / "old")):
        page = notebook.run(f"%watcher inspect {row['run_id']}").value
        assert row["run_id"] in page.text() and "%%watcher recover" not in page.text()
