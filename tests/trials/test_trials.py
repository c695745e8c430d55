"""One trial for real: a guard, a worker, and an entrypoint that trains, lies, hangs, forks, crashes or shouts."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from builders import plan as make_plan
from builders import request as make_request

from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.contract.identity import CodeIdentity
from watcherml.protocol.request import Launch
from watcherml.sealed.device import Device
from watcherml.trials.logs import with_tails
from watcherml.trials.members import kill_all, members
from watcherml.trials.outcome import Exit, result_of
from watcherml.trials.paths import TrialPaths
from watcherml.trials.runner import LocalExecutor

SOURCE = """
import os, signal, subprocess, sys, time, json, pathlib
import watcherml

def good(config, max_steps=None):
    print("training", config["batch_size"])
    return {"steps_completed": max_steps or 50, "val_loss": 0.25}

def marks(config, max_steps=None):
    for _ in range(7): watcherml.step()
    return {"steps_completed": 7}

def nothing(config, max_steps=None):
    return None

def oom(config, max_steps=None):
    raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of"
                       " which 3.00 MiB is free.")

def ends_in_evaluation(config, max_steps=None):
    watcherml.step()
    with watcherml.phase("evaluation"):
        oom(config)

def ends_in_a_checkpoint(config, max_steps=None):
    watcherml.step()
    with watcherml.phase("checkpoint"):
        oom(config)

def ends_in_resuming(config, max_steps=None):
    with watcherml.phase("load"):
        oom(config)

def fails(config, max_steps=None):
    raise ValueError("no")

def nan(config, max_steps=None):
    return {"steps_completed": 5, "loss": float("nan")}

def listing(config, max_steps=None):
    return [1, 2]

def hangs(config, max_steps=None):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)

def forks(config, max_steps=None):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.environ.clear()
            os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], {})
        os._exit(0)
    time.sleep(0.3)
    return {"steps_completed": 5}

def last_words(config, max_steps=None):
    print("reading data", file=sys.stderr)
    print("disk of the cluster is gone; token=ghp_" + "a1B2" * 9, file=sys.stderr, flush=True)
    os._exit(3)

def mistakes(config, max_steps=None):
    import argparse
    argparse.ArgumentParser().parse_args()  # a trial has no command line
    return config["no such key"]

def shouts(config, max_steps=None):
    line = "x" * 999 + "\\n"
    print("HEAD")
    for _ in range(5000): sys.stdout.write(line)
    print("TAIL", flush=True)
    return {"steps_completed": 5}

def forks_home(config, max_steps=None):
    if os.fork() == 0:
        return {"steps_completed": 4, "val_loss": 0.0}
    for _ in range(3): watcherml.step()
    time.sleep(1.0)
    return {"steps_completed": 3, "val_loss": 0.5}

def late_torch(config, max_steps=None):
    import torch
    return {"steps_completed": 50}

def late_training(config, max_steps=None):
    import torch
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], 0.1)
    scaler = torch.amp.GradScaler("cpu")
    for factor in (1.0, 1.0, float("inf"), 1.0):  # the third overflows, and the scaler leaves its step out
        optimizer.zero_grad()
        scaler.scale(weight.sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
    assert weight.isfinite().all()
    return {"steps_completed": 4}

def late_batch_norm(config, max_steps=None):
    import torch
    norm = torch.nn.SyncBatchNorm(4)
    for _ in range(3): watcherml.step()
    return {"steps_completed": 3}

def changes_config(config, max_steps=None):
    config["batch_size"] = 1
    return {"steps_completed": 5}
"""

PLAN = make_plan(device=Device("none"))


@pytest.fixture
def run_trial(storage, tmp_path):
    """Run one function of SOURCE as a probe and return its result."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "hostile.py").write_text(SOURCE)
    executor = LocalExecutor(storage.path)
    storage.create()
    numbers = iter(range(1, 100))

    def start(function, timeout=30.0, grace=0.5, **changes):
        number = next(numbers)
        request = make_request(
            PLAN, "probe", number, "batch-32x2", entrypoint=TrainingEntrypoint(f"hostile:{function}"),
            timeout_seconds=timeout, grace_seconds=grace, **changes,
        )  # fmt: skip
        launch = Launch(request.digest, "demo", str(project), str(storage.path), sys.executable, None, 100_000)
        executor.submit(request, launch)
        return request

    def left(request):
        return members(TrialPaths.of(storage.path, request.trial_id).mark)

    def run(function, **options):
        request = start(function, **options)
        while (result := executor.poll(request.trial_id)) is None:
            time.sleep(0.02)
        assert left(request) == [], "a process of the trial is left"
        return result

    run.start, run.executor, run.project, run.left = start, executor, project, left
    return run


OUTCOMES = {
    "good": ("completed", "Ended well after 30 steps"),
    "marks": ("completed", "after 7 steps (marks)"),
    "nothing": ("completed", "after 0 steps (none)"),
    "oom": ("oom", "Ran out of memory"),
    "fails": ("training_failed", "ValueError: no"),
    "nan": ("contract_error", "'loss'"),
    "listing": ("contract_error", "mapping of metrics"),
    "missing": ("training_failed", "missing"),
}


@pytest.mark.parametrize("function", OUTCOMES)
def test_outcomes(run_trial, storage, function):
    outcome, words = OUTCOMES[function]
    if function == "missing":
        result = run_trial("no_such_function")
        assert result.outcome == "contract_error" and "no_such_function" in result.sentence
        return
    result = run_trial(function)
    assert result.outcome == outcome, result.sentence
    assert words in result.sentence
    if outcome == "completed":
        assert result.exit_code == 0 and result.execution_id
        row = storage.get_run(result.run_id)
        assert row["status"] == "success" and row["role"] == "trial" and row["config"]["batch_size"] == 32
    assert storage.list_runs() == []


def test_the_result_says_what_was_measured(run_trial):
    result = run_trial("good")
    assert result.metrics == {"steps_completed": 30.0, "val_loss": 0.25}
    assert (result.progress.steps, result.progress.source) == (30, "claimed")
    assert set(result.identity.code.files) == {"hostile.py"}
    assert result.identity.environment_fingerprint.startswith("sha256:")
    assert result.device.kind == "none" and result.peak is None
    assert 0 < result.wall_seconds <= result.gpu_seconds + 0.001


def test_a_forked_child_that_comes_back_writes_no_report(run_trial):
    result = run_trial("forks_home")
    assert (result.progress.steps, result.progress.source) == (3, "marks") and result.metrics["val_loss"] == 0.5


@pytest.mark.parametrize("function, phase", [("ends_in_evaluation", "evaluation"), ("ends_in_resuming", "load"),
                                             ("ends_in_a_checkpoint", "checkpoint")])  # fmt: skip
def test_an_out_of_memory_is_reported_in_the_part_of_training_where_it_came(run_trial, function, phase):
    result = run_trial(function)
    assert (result.outcome, result.failure.phase) == ("oom", phase)
    assert f"Ran out of memory in {phase}" in result.sentence


def test_torch_that_is_imported_late_is_watched_all_the_same(run_trial):
    pytest.importorskip("torch")
    idle = run_trial("late_torch")
    assert (idle.progress.steps, idle.progress.source) == (0, "none")
    trained = run_trial("late_training")
    assert (trained.progress.steps, trained.progress.source) == (4, "optimizer")


@pytest.mark.parametrize("after", [0.0, 0.2, 1.5])
def test_guard_and_supervisor_killed_at_once_take_the_worker_with_them(run_trial, after):
    request = run_trial.start("hangs")
    wait_for(lambda: run_trial.left(request))
    time.sleep(after)
    guard = run_trial.executor._running[request.trial_id][2]
    guard.stdin.close()  # what the supervisor's death looks like
    os.kill(guard.pid, signal.SIGKILL)
    wait_for(lambda: not run_trial.left(request), seconds=5)
    guard.wait()
    assert run_trial.executor.poll(request.trial_id).outcome == "lost"


def test_a_trial_that_ignores_sigterm_is_killed_after_its_grace(run_trial):
    started = time.monotonic()
    result = run_trial("hangs", timeout=1.5, grace=0.5)
    assert result.outcome == "timeout" and "1.5 s" in result.sentence
    assert time.monotonic() - started < 10


def test_descendants_are_gone_even_with_a_session_and_no_marker(run_trial):
    before = {process.pid for process in psutil.process_iter()}
    result = run_trial("forks")
    assert result.outcome == "completed"
    time.sleep(0.2)
    left = []
    for process in psutil.process_iter():
        try:
            if process.pid not in before and "sleep(600)" in " ".join(process.cmdline()):
                left.append(process)
        except psutil.Error:
            continue
    assert left == []


def test_logs_keep_head_and_tail_within_their_bound(run_trial, storage):
    result = run_trial("shouts")
    log = TrialPaths.of(storage.path, result.trial_id).stdout.read_text()
    assert log.startswith("HEAD") and log.endswith("TAIL\n") and "bytes left out" in log
    assert len(log) < 101_000


def test_an_error_of_the_functions_own_is_shown_with_its_line(run_trial, storage):
    result = run_trial("mistakes")
    assert result.outcome == "training_failed" and "KeyError" in result.sentence
    (shown,) = with_tails(storage.path, [{"trial_id": result.trial_id, "outcome": result.outcome}])
    told = "\n".join(shown["log_tail"])
    assert ", in mistakes" in told and 'return config["no such key"]' in told


def test_the_last_lines_of_a_trial_that_died_are_shown_and_hold_no_secret(run_trial, storage):
    result = run_trial("last_words")
    assert "exit code 3" in result.sentence
    assert "The last line it printed: disk of the cluster is gone" in result.sentence
    rows = [{"trial_id": result.trial_id, "outcome": outcome} for outcome in ("exited", "oom", "completed", "running")]
    shown, *others = with_tails(storage.path, [*rows, {"trial_id": "never-ran", "outcome": "lost"}])
    assert [line.partition(";")[0] for line in shown["log_tail"]] == ["reading data", "disk of the cluster is gone"]
    assert "ghp_a1B2" not in result.sentence + "".join(shown["log_tail"])
    assert [one["log_tail"] for one in others] == [[], [], [], []]
    stderr = TrialPaths.of(storage.path, result.trial_id).stderr
    stderr.unlink()
    stderr.symlink_to("/dev/zero")  # not followed
    assert with_tails(storage.path, rows)[0]["log_tail"] == []


def test_stop_ends_a_trial(run_trial):
    request = run_trial.start("hangs", grace=0.2)
    wait_for(lambda: run_trial.left(request))
    run_trial.executor.stop(request.trial_id)
    wait_for(lambda: run_trial.executor._running[request.trial_id][2].poll() is not None)
    assert run_trial.executor.poll(request.trial_id).outcome == "killed"
    assert run_trial.left(request) == []


def test_a_killed_guard_leaves_a_lost_trial_and_no_process(run_trial):
    request = run_trial.start("hangs")
    wait_for(lambda: run_trial.left(request))
    guard = run_trial.executor._running[request.trial_id][2]
    os.kill(guard.pid, signal.SIGKILL)
    wait_for(lambda: guard.poll() is not None)
    result = run_trial.executor.poll(request.trial_id)
    assert result.outcome == "lost"
    assert run_trial.left(request) == []


def test_a_request_is_executed_once(run_trial, storage):
    result = run_trial("good")
    paths = TrialPaths.of(storage.path, result.trial_id)
    again = subprocess.run(
        [sys.executable, "-m", "watcherml.trials.worker", str(paths.request)], input=b"n\n", capture_output=True
    )
    assert again.returncode != 0 and b"FileExistsError" in again.stderr


def test_a_report_of_another_request_is_not_a_result(run_trial, storage):
    result = run_trial("good")
    paths = TrialPaths.of(storage.path, result.trial_id)
    report = next(paths.folder.glob("report.*.json"))
    other = make_request(PLAN, "probe", 99, "batch-32x2")
    judged = result_of(other, Exit("exited", 0, None, 1.0, 1.0, 0, report.name), paths.folder)
    assert judged.outcome == "exited" and "another request" in judged.sentence
    report.write_bytes(report.read_bytes().replace(b"0.25", b"0.24"))
    mine = make_request(PLAN, "probe", 1, "batch-32x2", entrypoint=TrainingEntrypoint("hostile:good"))
    judged = result_of(mine, Exit("exited", 0, None, 1.0, 1.0, 0, report.name), paths.folder)
    assert judged.outcome == "exited" and "not valid" in judged.sentence


def test_the_standard_library_wins_over_the_project(run_trial):
    (run_trial.project / "random.py").write_text("raise RuntimeError('the wrong random')")
    (run_trial.project / "json.py").write_text("raise RuntimeError('the wrong json')")
    assert run_trial("good").outcome == "completed"


def test_code_outside_the_project_root_is_not_its_code(run_trial):
    (run_trial.project / "helper.py").write_text("X = 1")
    (run_trial.project / "hostile.py").write_text(SOURCE + "\nimport helper\n")
    result = run_trial("good")
    assert set(result.identity.code.files) == {"hostile.py", "helper.py"}
    assert isinstance(result.identity.code, CodeIdentity)


def wait_for(condition, seconds=15.0):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return found


def test_a_trial_says_whether_it_built_batch_norm_however_late_torch_came(run_trial):
    assert run_trial("late_training").traits == ()
    result = run_trial("late_batch_norm")
    assert result.outcome == "completed" and result.traits == ("batch_norm",)


def test_an_allocator_setting_without_cuda_is_not_observable(run_trial):
    from watcherml.protocol.proposal import ALLOCATOR_VARIABLES

    result = run_trial("good", environment=dict.fromkeys(ALLOCATOR_VARIABLES, "expandable_segments:True"))
    assert {one.capability: one.state for one in result.knobs}["allocator_configuration"] == "not_observable"
    assert "allocator_configuration" not in {one.capability for one in run_trial("good").knobs}


def test_two_stores_may_hold_a_campaign_of_one_name_and_neither_ends_the_other(run_trial, tmp_path):
    mine = run_trial.start("hangs")
    wait_for(lambda: run_trial.left(mine))
    other = TrialPaths.of(tmp_path / "another-store", mine.trial_id)
    assert other.mark != TrialPaths.of(tmp_path / ".watcherml", mine.trial_id).mark
    assert kill_all(other.mark) == 0 and run_trial.left(mine)
    run_trial.executor.stop(mine.trial_id)
    wait_for(lambda: run_trial.executor.poll(mine.trial_id) is not None)
