"""A clock that is set ends no trial, and a script that ``runpy`` runs is code of the project."""

import io
import runpy
import sys
import time

from builders import plan as make_plan
from builders import request as make_request

from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.protocol.request import Launch
from watcherml.sealed.device import Device
from watcherml.store.storage import Storage
from watcherml.trials import code, runner
from watcherml.trials.runner import LocalExecutor

TRAINS = "import time\n\ndef train(config, max_steps=None):\n    time.sleep(0.3)\n    return {'steps_completed': 50}\n"


def test_a_clock_that_jumps_ends_no_trial(tmp_path, monkeypatch):
    (tmp_path / "ent.py").write_text(TRAINS)
    storage = Storage(tmp_path / ".watcherml")
    storage.create()
    made = make_plan(device=Device("none"))
    request = make_request(made, "full", 1, "batch-32x2", entrypoint=TrainingEntrypoint("ent:train"))
    executor = LocalExecutor(storage.path)
    executor.submit(request, Launch(request.digest, "demo", str(tmp_path), str(storage.path), sys.executable, None))

    class Jumped:
        monotonic = staticmethod(time.monotonic)

        @staticmethod
        def time():
            return time.time() + 10**6

    monkeypatch.setattr(runner, "time", Jumped)
    while (result := executor.poll(request.trial_id)) is None:
        time.sleep(0.02)
    assert result.outcome == "completed", result.sentence


def test_a_script_that_runpy_runs_is_measured_as_it_was_then(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(code, "_LOADERS", ())  # or this process would go on telling
    monkeypatch.setattr(io, "open_code", io.open_code)
    script = tmp_path / "script.py"
    script.write_text("VALUE = 1\n")
    files = code.watch_imports(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert runpy.run_path("script.py")["VALUE"] == 1
    before = dict(files)
    script.write_text("VALUE = 2\n")
    assert list(before) == ["script.py"] and files == before
    assert code.watch_imports(tmp_path) == {} and runpy.run_path(str(script))["VALUE"] == 2
