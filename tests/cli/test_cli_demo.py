"""``watcher demo``, the first command of the README: run once for real, with PyTorch, from end to end."""

import hashlib
import json
import os
import subprocess
import sys

import pytest

import watcherml
from watcherml.cli.commands import demo
from watcherml.cli.demo_folder import MARKER, DemoFolder
from watcherml.cli.main import main
from watcherml.errors import InvalidValue

SECONDS = 400  # an idle machine with two cores takes about 40


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Run the demo in an empty folder; returns the folder and what was shown."""
    where = tmp_path_factory.mktemp("somewhere")
    environment = {key: value for key, value in os.environ.items() if key != "WATCHERML_DIR"}
    done = subprocess.run(
        [sys.executable, "-m", "watcherml", "demo"],
        capture_output=True, text=True, cwd=where, timeout=SECONDS, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "", done.stderr
    return where, done.stdout


def part(shown, start, end):
    return shown[shown.index(start) : shown.index(end)]


def test_the_failure_is_shown_in_two_lines_and_explained(told):
    _, shown = told
    error = part(shown, "1. Training", "2. Why").strip().splitlines()[1:]
    assert len(error) == 2
    assert error[0].strip().startswith("SimulatedOutOfMemoryError: [SIMULATED")
    assert "Tried to allocate" in error[1] and "96.00 MiB" in error[1]
    why = part(shown, "2. Why", "3. The contract")
    assert "ran out of memory" in why and "missing" in why and "pieces of evidence" in why


def test_each_trial_is_shown_with_its_peak_beside_the_budget(told):
    _, shown = told
    lines = [line.split() for line in part(shown, "4. Trials", "5. Verdict").splitlines() if " peak " in line]
    roles = [words[0] for words in lines]
    assert roles[0] == "control" and roles[-3:] == ["full", "confirmation", "control"] and "probe" in roles
    assert all("of 96.0 MiB [" in " ".join(words) for words in lines)
    assert "out of memory" in " ".join(lines[0]) and f"completed {demo.STEPS} steps" in " ".join(lines[-2])


def test_the_verdict_is_verified_and_says_that_the_device_is_simulated(told):
    where, shown = told
    verdict = part(shown, "5. Verdict", "Look at it")
    assert "Verified on the simulated device" in verdict and "→" in verdict and "Took " in verdict
    (row,) = watcherml.frames.campaigns(where / "watcherml-demo" / ".watcherml").to_dict("records")
    assert row["status"] == "verified" and row["device_kind"] == "simulated"
    result = watcherml.RecoveryResult.of_campaign(
        row["campaign_id"], watcherml.Storage(where / "watcherml-demo" / ".watcherml")
    )
    found = result.verified_config
    assert result.verified and found["batch_size"] * found["gradient_accumulation_steps"] == 64
    (confirmation,) = (trial.result for trial in result.trials if trial.request.role == "confirmation")
    assert confirmation.metrics["val_loss"] < demo.LOSS_BOUND < demo.UNTRAINED_LOSS
    assert confirmation.progress.steps == demo.STEPS and confirmation.progress.source == "optimizer"
    assert confirmation.peak.compared_bytes < 0.95 * 96 * 2**20
    (probe,) = (trial.result for trial in result.trials if trial.request.role == "probe" and trial.result.metrics)
    assert probe.metrics["val_loss"] > demo.LOSS_BOUND, (
        "the bound has to tell a trained model from a hardly trained one"
    )


def test_the_commands_it_ends_with_work_as_they_stand(told):
    where, shown = told
    commands = [line.strip() for line in shown[shown.index("Look at it") :].splitlines()[1:] if line.strip()]
    assert len(commands) == 4
    said = [
        subprocess.run(command, shell=True, capture_output=True, text=True, cwd=where, timeout=60, check=True).stdout
        for command in commands
    ]
    assert "ran out of memory" in said[0] and "Verified" in said[1] and "verified" in said[2]
    assert said[3].count("\n") >= 6


def test_everything_lies_in_its_own_folder(told):
    where, _ = told
    assert [path.name for path in where.iterdir()] == ["watcherml-demo"]
    folder = where / "watcherml-demo"
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == {"char_gpt.py", MARKER, ".watcherml"}
    assert "watcherml" not in (folder / "char_gpt.py").read_text()


# -- the folder ----------------------------------------------------------------------------------------------------


def test_a_folder_of_the_demo_is_taken_up_again(tmp_path):
    folder = DemoFolder(tmp_path / "d")
    assert folder.make() is False
    (folder.path / "notes.txt").write_text("mine")
    assert folder.make() is False
    assert (folder.path / "notes.txt").read_text() == "mine"


def test_an_edited_file_is_not_overwritten(tmp_path):
    folder = DemoFolder(tmp_path / "d")
    folder.make()
    folder.code.write_text("edited = True\n")
    with pytest.raises(InvalidValue, match="--keep"):
        folder.make()
    assert folder.make(keep=True) is True and folder.code.read_text() == "edited = True\n"


def test_an_older_version_of_its_own_file_is_replaced(tmp_path):
    folder = DemoFolder(tmp_path / "d")
    folder.make()
    new = folder.code.read_bytes()
    folder.code.write_bytes(b"old = True\n")
    digest = "sha256:" + hashlib.sha256(b"old = True\n").hexdigest()
    (folder.path / MARKER).write_text(json.dumps({"char_gpt.py": digest}))
    assert folder.make() is False and folder.code.read_bytes() == new


@pytest.mark.parametrize("marker", [None, "{}", "not json", "[]"])
def test_a_file_of_somebody_else_stays(marker, tmp_path):
    (tmp_path / "char_gpt.py").write_text("theirs = True\n")
    if marker is not None:
        (tmp_path / MARKER).write_text(marker)
    with pytest.raises(InvalidValue):
        DemoFolder(tmp_path).make()
    assert (tmp_path / "char_gpt.py").read_text() == "theirs = True\n"
    assert not (tmp_path / ".watcherml").exists()


def test_a_folder_of_somebody_else_ends_with_1_and_a_remedy(tmp_path, storage, capsys):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "thesis.tex").write_text("mine")
    assert main(["demo", "--dir", "project"]) == 1
    assert "--dir DIR" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "project").iterdir()] == ["thesis.tex"]
    (tmp_path / "file").write_text("mine")
    assert main(["demo", "--dir", "file"]) == 1


def test_without_torch_the_install_command_is_given(tmp_path, storage, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["demo"]) == 1
    assert 'pip install ".[demo]"' in capsys.readouterr().err and not (tmp_path / "watcherml-demo").exists()
