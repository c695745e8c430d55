"""A store that somebody removes while a run goes on: the run appears again, with what is logged from then on."""

import os
import shutil

import pytest

import watcherml
from watcherml.store.storage import Storage


@pytest.mark.parametrize("plain", ["0", "1"])
@pytest.mark.parametrize("what", [".", "spool", "watcherml.db"])
def test_a_run_whose_store_is_removed_appears_again(storage, tmp_path, monkeypatch, plain, what):
    monkeypatch.setenv("WATCHERML_PLAIN_IO", plain)
    (tmp_path / "data").write_text("x")
    run = watcherml.Run("demo", {"lr": 0.1}, storage, quiet=True).start()
    run.join_facts()
    run._sampler.stop()
    run.set_dataset(tmp_path / "data")
    for step in range(100):
        run.log_metric(f"m{step % 3}", float(step), step)
    run._sampler._deliver(*run._sampler.sample())
    for path in [storage.path] if what == "." else storage.path.glob(f"{what}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    run._sampler._deliver(*run._sampler.sample())
    for step in range(100, 200):
        run.log_metric(f"m{step % 4}", float(step), step)
    run.log_artifact(tmp_path / "data")
    run.finish()
    assert run.problems == []
    row = storage.get_run(run.run_id)
    assert (row["status"], row["config"], row["last_step"]) == ("success", {"lr": 0.1}, 199)
    assert {"git", "environment", "machine", "dataset"} <= row["facts"].keys() and row["receipt"]
    found = {point["step"]: (point["name"], point["value"]) for point in storage.get_metrics(run.run_id)}
    assert {step: (f"m{step % 4}", float(step)) for step in range(100, 200)}.items() <= found.items()
    if what == "spool":
        assert len(found) == 200
    assert len(storage.runs.artifacts(run.run_id)) == 1
    assert (storage.path / ".gitignore").read_text() == "*\n"


def test_a_patch_that_went_with_the_store_is_not_claimed(storage, tmp_path):
    os.system("git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x")
    (tmp_path / "code.py").write_text("x = 1\n")
    run = watcherml.Run("demo", {}, storage, quiet=True).start()
    run.join_facts()
    assert storage.get_run(run.run_id)["facts"]["git"]["patch"]
    run._sampler.stop()
    shutil.rmtree(storage.path)
    run.finish()
    git = storage.get_run(run.run_id)["facts"]["git"]
    assert "patch" not in git and "removed" in git["patch_omitted"] and git["commit"]


def test_a_run_whose_store_is_removed_at_the_very_end_is_on_record(storage):
    run = watcherml.Run("demo", {}, storage, quiet=True).start()
    run.join_facts()
    run._sampler.stop()  # it would make files in the folder that is being removed
    shutil.rmtree(storage.path)
    run.finish()
    assert run.problems == [] and Storage(storage.path).get_run(run.run_id)["status"] == "success"


def test_a_failure_after_the_store_was_removed_is_on_record_at_once(storage):
    run = watcherml.init("demo", {"lr": 0.1}, storage)
    run.join_facts()
    run._sampler.stop()
    run._sampler._deliver(*run._sampler.sample())
    shutil.rmtree(storage.path)
    run.record_failure(ValueError("boom"))
    assert run.problems == []
    assert storage.get_capsule(run.run_id)["failure"]["message"] == "boom"
    run.finish()


def test_a_working_directory_that_was_deleted_costs_the_recording_and_not_the_training(tmp_path, monkeypatch):
    monkeypatch.delenv("WATCHERML_DIR", raising=False)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    error = ValueError("mine")
    with pytest.warns(RuntimeWarning, match="the working directory was deleted"):
        with pytest.raises(ValueError) as caught, watcherml.init("demo", {"lr": 0.1}) as run:
            run.log_metric("loss", 1.0, step=1)
            raise error
    assert caught.value is error and run.status == "failed" and run.problems
    with watcherml.init("demo", {}, tmp_path / "elsewhere") as kept:
        pass
    assert Storage(tmp_path / "elsewhere").get_run(kept.run_id)["status"] == "success"
