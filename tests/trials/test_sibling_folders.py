"""What an earlier trial left where a later one is to run does not reach it."""

import os
import sys
import time

import pytest
from builders import plan as make_plan
from builders import request as make_request

from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.protocol.request import Launch
from watcherml.sealed.device import Device
from watcherml.store.storage import Storage
from watcherml.trials.paths import TrialPaths
from watcherml.trials.runner import LocalExecutor

MADE = make_plan(device=Device("none"))
FILES = ("request.json", "launch.json", "claim", "exit.json", "guard.log", "stdout.log", "stderr.log")


def pipes(paths):
    paths.folder.mkdir(parents=True)
    for name in FILES:
        os.mkfifo(paths.folder / name)
    (paths.folder / "json.py").write_text("raise SystemExit('not the json of Python')\n")


def link(paths):
    (paths.folder.parent.parent / "kept").mkdir(parents=True)
    (paths.folder.parent.parent / "kept" / "claim").write_text("somebody else's")
    paths.folder.parent.mkdir()
    paths.folder.symlink_to(paths.folder.parent.parent / "kept")


def file(paths):
    paths.folder.parent.mkdir(parents=True)
    paths.folder.write_text("a file")


def pipe(paths):
    paths.folder.parent.mkdir(parents=True)
    os.mkfifo(paths.folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_trial_runs_where_an_earlier_one_left_pipes_and_modules(tmp_path):
    (tmp_path / "ent.py").write_text("def train(config, max_steps=None):\n    return {'steps_completed': 50}\n")
    storage = Storage(tmp_path / ".watcherml")
    storage.create()
    request = make_request(MADE, "full", 1, "batch-32x2", entrypoint=TrainingEntrypoint("ent:train"))
    pipes(TrialPaths.of(storage.path, request.trial_id))
    executor = LocalExecutor(storage.path)
    executor.submit(request, Launch(request.digest, "demo", str(tmp_path), str(storage.path), sys.executable, None))
    while (result := executor.poll(request.trial_id)) is None:
        time.sleep(0.02)
    assert result.outcome == "completed", result.sentence


@pytest.mark.parametrize("left", [pipes, link, file, pipe])
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_folder_is_made_anew_whatever_stands_there(tmp_path, left):
    paths = TrialPaths.of(tmp_path / "store", "campaign-t02")
    left(paths)
    paths.make()
    assert list(paths.folder.iterdir()) == [] and not paths.folder.is_symlink()
    assert left is not link or (tmp_path / "store" / "kept" / "claim").read_text() == "somebody else's"
