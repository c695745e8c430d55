"""The metric spool: every point survives a SIGKILL, and none is taken twice."""

import math
import os
import signal
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from watcherml.store import journal
from watcherml.store.journal import Spool
from watcherml.store.storage import Storage


@pytest.fixture
def run(storage):
    import watcherml

    run = watcherml.Run("demo", {}, storage, quiet=True).start()
    run._sampler.stop()  # it folds too, at moments of its own
    yield run
    run.interrupt("test over")


def test_points_survive_sigkill_and_the_run_is_called_killed(storage, tmp_path):
    code = (
        "import watcherml, sys, os, signal\n"
        "run = watcherml.Run('p', {}, sys.argv[1], quiet=True).start()\n"
        "for i in range(5000): run.log_metric('loss', i / 7, step=i)\n"
        "print(run.run_id, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    child = subprocess.run([sys.executable, "-c", code, str(storage.path)], capture_output=True, text=True)
    assert child.returncode == -signal.SIGKILL
    run_id = child.stdout.strip()
    storage.settle()
    row = storage.get_run(run_id)
    assert row["status"] == "killed" and row["ended_at"] is not None
    points = storage.get_metrics(run_id)
    assert [point["step"] for point in points] == list(range(5000))
    assert [point["value"] for point in points] == [i / 7 for i in range(5000)]
    assert not list(storage.runs.spool_folder.glob("*"))


def test_folding_twice_takes_each_point_once(storage, run):
    for step in range(10):
        run.log_metric("loss", step, step=step)
        storage.runs.fold(run.run_id)
    storage.runs.fold(run.run_id)
    assert [point["value"] for point in storage.get_metrics(run.run_id)] == list(range(10))


def test_a_torn_last_line_waits_for_its_rest(storage, run):
    run.log_metric("loss", 1.0, step=0)
    path = next(storage.runs.spool_folder.glob("*"))
    with path.open("ab") as stream:
        stream.write(b'["loss", 2.0, 1')
    storage.runs.fold(run.run_id)
    assert len(storage.get_metrics(run.run_id)) == 1
    with path.open("ab") as stream:
        stream.write(b", 5.0]\n")
    storage.runs.fold(run.run_id)
    assert [point["value"] for point in storage.get_metrics(run.run_id)] == [1.0, 2.0]


@given(st.lists(st.floats(width=64), max_size=30))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_every_double_reads_back(tmp_path_factory, values):
    storage = Storage(tmp_path_factory.mktemp("store"))
    import watcherml

    run = watcherml.Run("demo", {}, storage, quiet=True).start()
    try:
        for value in values:
            run.log_metric("x", value)
        storage.runs.fold(run.run_id)
        found = [point["value"] for point in storage.get_metrics(run.run_id)]
        assert len(found) == len(values)
        for given_value, read in zip(values, found, strict=True):
            assert read == given_value or (math.isnan(read) and math.isnan(given_value))
    finally:
        run.interrupt("done")


def test_a_line_that_cannot_be_stored_costs_only_itself(storage, run):
    run.log_metric("loss", 1.0, step=0)
    path = next(storage.runs.spool_folder.glob("*"))
    with path.open("ab") as stream:
        for line in (b'["loss", 2.0, 99999999999999999999, 5.0]', b'["\\ud800", 2.0, 1, 5.0]', b"[1]", b"null", b"{}"):
            stream.write(line + b"\n")
    run.log_metric("loss", 3.0, step=2)
    storage.settle()
    storage.runs.fold(run.run_id)
    assert [point["value"] for point in storage.get_metrics(run.run_id)] == [1.0, 3.0]


def test_a_forked_child_writes_to_its_own_file(tmp_path):
    spool = Spool(tmp_path, "r")
    spool.append("a", 1.0, 0, 1.0)
    pid = os.fork()
    if pid == 0:
        spool.append("a", 2.0, 1, 2.0)
        os._exit(0)
    os.waitpid(pid, 0)
    spool.append("a", 3.0, 2, 3.0)
    spool.close()
    files = sorted(path.name for path in tmp_path.glob("r.*.jsonl"))
    assert len(files) == 2 and all(len(path.read_bytes().splitlines()) in (1, 2) for path in tmp_path.iterdir())


def test_fold_is_the_callers_transaction(storage, run):
    run.log_metric("loss", 1.0, step=0)
    with pytest.raises(ZeroDivisionError):
        with storage.database.writing() as connection:
            assert journal.fold(connection, storage.runs.spool_folder, run.run_id) == 1
            1 / 0  # noqa: B018
    storage.runs.fold(run.run_id)
    assert len(storage.get_metrics(run.run_id)) == 1
