"""A rank that finds no rank 0: variables left over in a shell, a rank 0 that records elsewhere, or one that is late."""

import os
import signal
import subprocess
import sys
import time
import warnings

import pytest

import watcherml
from watcherml.recorder import ranks

LEFT_OVER = {"RANK": "1", "WORLD_SIZE": "2"}
ELASTIC = {**LEFT_OVER, "TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
JOB = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK", *ranks._JOB)

TRAIN = """
import os, sys, time, watcherml
from watcherml.recorder import ranks
ranks.MEET_SECONDS = ranks.MEET_AFTER_FAILURE_SECONDS = 0.1
how = sys.argv[2]
run = watcherml.init('p', {'seed': 1}, sys.argv[1])
for step in range(10): run.log_metric('x', float(step), step=step)
run.set_dataset(sys.argv[0])
run.log_artifact(sys.argv[0])
if how == 'fail': raise ValueError('boom')
if how == 'finish': run.finish()
if how == 'fork':
    pid = os.fork()
    if pid == 0:
        run.log_metric('child', 1.0)
        os._exit(0)
    os.waitpid(pid, 0)
    run.finish()
"""


def train(storage, folder, how, environment):
    (folder / "train.py").write_text(TRAIN)
    clean = {name: value for name, value in os.environ.items() if name not in JOB}
    return subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "train.py", str(storage.path), how],
        cwd=folder, capture_output=True, text=True, env={**clean, **environment}, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("how", "status"), [("finish", "success"), ("end", "success"), ("fork", "success"), ("fail", "failed")]
)
@pytest.mark.parametrize("environment", [LEFT_OVER, ELASTIC], ids=["left over", "elastic"])
def test_a_rank_without_rank_0_loses_nothing_and_is_told_once(storage, tmp_path, how, status, environment):
    done = train(storage, tmp_path, how, environment)
    assert done.returncode == (1 if how == "fail" else 0), done.stderr
    assert done.stderr.count("RuntimeWarning") == 1 and "rank 1 of 2" in done.stderr
    assert all(word in done.stderr for word in ("RANK and WORLD_SIZE", "unset", "WATCHERML_DIR", str(storage.path)))
    (row,) = storage.list_runs()
    run_id = row["run_id"]
    assert row["status"] == status and row["last_step"] == 9
    points = [(point["name"], point["value"]) for point in storage.get_metrics(run_id)]
    assert points[:10] == [("x", float(step)) for step in range(10)]
    assert points[10:] == ([("child", 1.0)] if how == "fork" else [])
    facts = storage.get_run(run_id)["facts"]
    assert facts["job"] == {"rank": 1, "world_size": 2, "local_rank": None, "rank_0": "not found"}
    assert facts["dataset"]["files"] == 1 and facts["environment"]["packages"] and "git" in facts
    assert len(storage.runs.artifacts(run_id)) == 1
    assert not list(storage.runs.spool_folder.glob("*"))
    if how == "fail":
        assert storage.get_capsule(run_id)["failure"]["message"] == "boom"


def test_a_single_process_is_told_nothing(storage, tmp_path):
    done = train(storage, tmp_path, "finish", {})
    assert (done.returncode, done.stderr) == (0, "") and len(storage.list_runs()) == 1


@pytest.fixture
def rank_1(storage, monkeypatch):
    """This process as rank 1 that meets nobody at first, and looks on often."""
    for name in JOB:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ranks, "MEET_SECONDS", 0.0)
    monkeypatch.setattr(ranks, "_LOOK_ON_EVERY_SECONDS", 0.02)
    monkeypatch.setattr(ranks, "_runs_started", iter(range(10)))

    def start(**environment):
        for name, value in {**LEFT_OVER, **environment}.items():
            monkeypatch.setenv(name, value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return watcherml.Run("p", {}, storage, quiet=True).start()

    return start


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("elastic", [{}, {"TORCHELASTIC_RUN_ID": "none"}], ids=["by hand", "elastic"])
def test_a_rank_0_that_comes_late_has_the_only_run(storage, tmp_path, monkeypatch, rank_1, elastic):
    (tmp_path / "data").write_text("x")
    follower = rank_1(**elastic)
    own = follower.run_id
    follower.log_metric("x", 1.0)
    follower.set_dataset(tmp_path / "data")
    assert storage.list_runs() == [] if storage.exists else True
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(ranks, "_runs_started", iter(range(10)))
    leader = watcherml.Run("p", {}, storage, quiet=True).start()
    until(lambda: follower.run_id == leader.run_id)
    follower.log_metric("x", 2.0)
    until(lambda: not list(storage.runs.spool_folder.glob(f"{own}.*")))
    follower.finish()
    leader.log_metric("x", 3.0)
    leader.finish()
    assert not follower.problems
    (row,) = storage.list_runs()
    assert row["run_id"] == leader.run_id != own and "dataset" not in storage.get_run(row["run_id"])["facts"]
    assert [point["value"] for point in storage.get_metrics(row["run_id"])] == [3.0]


def test_a_rank_0_that_is_seen_only_at_the_end_has_the_only_run(storage, monkeypatch, rank_1):
    monkeypatch.setattr(ranks, "_LOOK_ON_EVERY_SECONDS", 1_000.0)
    follower = rank_1()
    follower.log_metric("x", 1.0)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(ranks, "_runs_started", iter(range(10)))
    with watcherml.Run("p", {}, storage, quiet=True) as leader:
        follower.finish()
    assert [row["run_id"] for row in storage.list_runs()] == [leader.run_id]
    assert storage.get_metrics(leader.run_id) == []


def test_after_a_while_it_is_a_run_like_any_other(storage, tmp_path, monkeypatch, rank_1):
    monkeypatch.setattr(ranks, "ALONE_AFTER_SECONDS", 0.0)
    (tmp_path / "data").write_text("x")
    run = rank_1()
    run.log_metric("x", 1.0, step=1)
    run.set_dataset(tmp_path / "data")
    until(lambda: storage.exists and [row["status"] for row in storage.list_runs()] == ["running"])
    until(lambda: "dataset" in storage.get_run(run.run_id)["facts"])
    run.log_metric("x", 2.0, step=2)
    run.log_artifact(tmp_path / "data")
    run.finish()
    assert not run.problems and storage.get_run(run.run_id)["status"] == "success"
    assert len(storage.get_metrics(run.run_id)) == 2 and len(storage.runs.artifacts(run.run_id)) == 1


def test_a_job_that_surely_has_a_rank_0_waits_for_it_to_the_end(storage, monkeypatch, rank_1):
    monkeypatch.setattr(ranks, "ALONE_AFTER_SECONDS", 0.0)
    run = rank_1(TORCHELASTIC_RUN_ID="none")
    time.sleep(0.3)
    assert not storage.exists or storage.list_runs() == []
    run.finish()
    assert [row["status"] for row in storage.list_runs()] == ["success"]


@pytest.mark.parametrize(("elastic", "told"), [({}, 1), ({"TORCHELASTIC_RUN_ID": "none"}, 0)])
def test_only_a_doubtful_rank_is_told_at_its_start(storage, monkeypatch, rank_1, elastic, told):
    for name, value in {**LEFT_OVER, **elastic}.items():
        monkeypatch.setenv(name, value)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        run = watcherml.Run("p", {}, storage, quiet=True).start()
        assert [one.filename for one in seen] == [__file__] * told
        run.finish()
        assert len(seen) == 1


KILLED = """
import os, sys, time, watcherml
from watcherml.recorder import ranks
ranks.MEET_SECONDS = ranks.ALONE_AFTER_SECONDS = 0.0
ranks._LOOK_ON_EVERY_SECONDS = 0.02
run = watcherml.init('p', {}, sys.argv[1])
run.log_metric('x', 1.0)
while run._following is not None: time.sleep(0.01)
run.log_metric('x', 2.0)
os.kill(os.getpid(), 9)
"""


def test_a_rank_on_its_own_survives_sigkill(storage, tmp_path):
    clean = {name: value for name, value in os.environ.items() if name not in JOB}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, str(storage.path)], env={**clean, **LEFT_OVER}, timeout=60
    )
    assert done.returncode == -signal.SIGKILL
    storage.settle()
    (row,) = storage.list_runs()
    assert row["status"] == "killed" and len(storage.get_metrics(row["run_id"])) == 2


def test_warnings_that_are_errors_do_not_reach_training(storage, monkeypatch, rank_1):
    for name, value in LEFT_OVER.items():
        monkeypatch.setenv(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with watcherml.Run("p", {}, storage, quiet=True) as run:
            run.log_metric("x", 1.0)
    assert len(storage.get_metrics(run.run_id)) == 1
