"""Dry runs in a real child process: answers equal to the device's, reasons for every failure, and no trace outside."""

import contextlib
import ctypes
import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.trials.dry_run import DryRun, predict
from watcherml.trials.members import members

torch = pytest.importorskip("torch")
HERE = Path(__file__).resolve().parent
TARGET = TrainingEntrypoint("dry_run_entrypoints:train")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    (root / "dry_run_entrypoints.py").write_bytes((HERE / "dry_run_entrypoints.py").read_bytes())
    (root / "precious").write_text("data")
    return root


@pytest.fixture(scope="module")
def dry(project):
    """One child for the whole module: a candidate that fails must not be felt by the next one."""
    os.environ["DRY_RUN_TOKEN"] = "the-value"
    with DryRun(timeout_seconds=300) as session:
        assert session.open(TARGET, project, {"token": "env:DRY_RUN_TOKEN"}) == ""
        yield session
    del os.environ["DRY_RUN_TOKEN"]


@pytest.fixture
def ask(dry, project):
    def asking(kind, operators=None, **config):
        dry._integer = None  # these are as many entrypoints
        config = {"kind": kind, "folder": str(project), "token": "[redacted]", **config}
        return dry.ask(config, operators=operators)

    return asking


def measured(kind, steps=2, **config):
    """Return the peak of the same training for real, without a limit."""
    from watcherml.simulated.device import simulated_device

    module = importlib.import_module("dry_run_entrypoints")
    with simulated_device(None) as device:
        module.train({"kind": kind, **config}, max_steps=steps)
    return device.peak_bytes


@pytest.mark.parametrize("kind", ["plain", "accuracy", "slices_at_random", "loads_by_workers", "evaluates"])
@pytest.mark.parametrize("size", [8, 96])
def test_the_answer_is_the_devices_own_peak(ask, kind, size):
    answer = ask(kind, batch_size=size)
    assert (answer.peak_bytes, answer.reason, answer.steps) == (measured(kind, batch_size=size), "", 2)
    assert answer.operators > 50 and answer.seconds > 0


@pytest.mark.parametrize("kind", ["endless", "swallows", "floods", "saves_on_the_way_out", "records", "keeps_a_log"])
def test_two_steps_are_an_answer_however_training_goes_on(ask, kind, project):
    """Entrypoints that take no notice of max_steps, catch every exception, or fail when they are stopped."""
    if kind == "swallows":
        answer = ask(kind)
        assert answer.peak_bytes == measured("plain") and answer.steps == 2
    else:
        assert ask(kind).peak_bytes == measured("plain")
    assert sorted(path.name for path in project.iterdir()) == ["dry_run_entrypoints.py", "precious"]


def test_steps_that_are_marked_count_too(ask):
    answer = ask("marks")
    assert answer.steps >= 2 and answer.peak_bytes >= 2 * 4_096  # the weights and their gradient


def test_the_worst_batch_is_predicted_where_it_is_named(ask):
    assert ask("meets_the_worst").peak_bytes == measured("plain", batch_size=512)


def test_a_loaders_workers_are_done_without(ask):
    assert ask("loads_by_workers", workers=2).peak_bytes == measured("loads_by_workers")


def test_every_candidate_meets_a_fresh_process(ask):
    assert ask("keeps").peak_bytes == ask("keeps").peak_bytes == measured("keeps") is not None


REASONS = {
    "sized_by_data": "it reads back a value that is computed from data",
    "picks_by_mask": "the shape of a tensor depends on values",
    "aborts": "its process ended by SIGABRT",
    "leaves": "it raised SystemExit: 3",
    "needs_cuda": "it asks for a CUDA device",
    "one_step": "it made 1 optimizer step",
    "asks": "it raised EOFError",
    "array": "no data here",
    "writes_low": "it acts outside of the training",
    "removes": "it acts outside of the training",
    "forks": "it acts outside of the training",
    "starts_a_program": "it acts outside of the training",
    "nothing_of_that_name": "it raised KeyError",
}


@pytest.mark.parametrize("kind", REASONS)
def test_what_cannot_be_predicted_says_why_and_the_next_one_is_answered(ask, kind, project):
    answer = ask(kind)
    assert answer.peak_bytes is None and REASONS[kind] in answer.reason, answer
    assert len(answer.reason) < 400 and "\n" not in answer.reason
    assert ask("plain").peak_bytes is not None
    assert sorted(path.name for path in project.iterdir()) == ["dry_run_entrypoints.py", "precious"]


def test_an_integer_from_data_is_made_up_twice_only_until_it_is_known_not_to_matter(dry, ask, project):
    first = ask("accuracy")
    again = dry.ask({"kind": "accuracy", "folder": str(project), "token": ""})
    assert again.peak_bytes == first.peak_bytes and again.operators < first.operators / 2


def test_a_secret_in_an_error_is_not_repeated(ask):
    answer = ask("raises")
    assert "it raised ValueError" in answer.reason and "a1B2c3D4" not in answer.reason


def test_a_redacted_value_comes_from_its_variable(ask):
    assert ask("secret").peak_bytes == measured("plain")


def test_work_has_a_limit(ask):
    answer = ask("endless", operators=40)
    assert answer.peak_bytes is None and "more than 40 operators" in answer.reason and answer.operators == 41


def _kernel_helps():
    return sys.platform.startswith("linux") and ctypes.CDLL(None).syscall(444, None, 0, 1) >= 1


@pytest.mark.skipif(not _kernel_helps(), reason="needs Landlock")
def test_code_below_python_cannot_write_outside_either(ask, project):
    assert ask("writes_below_python").peak_bytes is not None
    assert not (project / "below").exists()


@pytest.mark.skipif(os.name == "nt", reason="POSIX processes")
def test_a_training_that_hangs_ends_in_time_and_with_all_its_processes(project):
    with DryRun(timeout_seconds=300) as dry:
        assert dry.open(TARGET, project) == ""
        dry._timeout, dry._deadline = 1.5, time.monotonic() + 1.5
        began = time.monotonic()
        first, second = dry.ask({"kind": "forks_below_python_and_hangs"}), dry.ask({"kind": "plain"})
        assert time.monotonic() - began < 10
        assert first.reason == second.reason == "the prediction took longer than 1.5 s"
        assert len(members(dry._marker)) >= 3
        scratch = dry._scratch
    assert members(dry._marker) == [] and not scratch.exists()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs the parent's death signal")
def test_no_process_outlives_the_one_that_asks(project, tmp_path):
    code = (
        "import sys\n"
        "from watcherml.trials.dry_run import DryRun, TrainingEntrypoint\n"
        "with DryRun() as dry:\n"
        f"    assert dry.open(TrainingEntrypoint({TARGET.target!r}), {str(project)!r}) == ''\n"
        "    print(dry._marker, flush=True)\n"
        "    dry.ask({'kind': 'hangs'})\n"
    )
    here = {**os.environ, "TMPDIR": str(tmp_path)}  # nobody is left to remove the scratch folder
    asking = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=here)
    marker = asking.stdout.readline().strip()
    wait_for(lambda: len(members(marker)) >= 2)
    os.kill(asking.pid, signal.SIGKILL)
    asking.wait()
    asking.stdout.close()
    try:
        wait_for(lambda: not members(marker))
    finally:
        for process in members(marker):
            with contextlib.suppress(Exception):
                process.kill()
    assert marker.startswith("dry-run-")


def wait_for(condition, seconds=15):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_entrypoint_that_cannot_be_imported_is_a_reason_for_all(tmp_path):
    (tmp_path / "broken.py").write_text("import torch\nraise RuntimeError('no GPU in this house')\n")
    answers = predict(TrainingEntrypoint("broken:train"), tmp_path, [({}, {}), ({}, {})])
    assert {one.reason for one in answers} == {"it raised RuntimeError: no GPU in this house"}
    assert len(answers) == 2 and all(one.peak_bytes is None for one in answers)


def test_an_interpreter_that_is_not_there_is_a_reason(tmp_path):
    answers = predict(TARGET, tmp_path, [({}, {})], python=str(tmp_path / "python"))
    assert "its process could not be started" in answers[0].reason


def test_a_child_that_cannot_start_is_a_reason(tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'no module named torch' >&2\nexit 1\n")
    broken.chmod(0o755)
    answers = predict(TARGET, tmp_path, [({}, {})], python=str(broken))
    assert answers[0].reason == "the process that predicts ended with exit code 1 (no module named torch)"
