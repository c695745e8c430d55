"""A system that hides its processes (no /proc, or one with ``hidepid``): runs are on record there as anywhere."""

import os
import subprocess
import sys

import pytest

from watcherml import platform
from watcherml.store.storage import Storage

# psutil's own switch for where it looks; without /proc it finds nothing, itself included.
SCRIPT = """
import psutil, sys
psutil.PROCFS_PATH = "/nonexistent"
import watcherml
run = watcherml.Run("demo", {}, sys.argv[1], quiet=True).start()
for step in range(100):
    run.log_metric("loss", 0.5, step=step)
print(run.run_id, flush=True)
if sys.stdin.readline():
    run.finish()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="psutil reads /proc on Linux")
@pytest.mark.parametrize(("word", "status"), [("", "killed"), pytest.param("end\n", "success", marks=pytest.mark.long)])
def test_a_run_of_a_process_that_psutil_does_not_see_is_on_record_with_every_point(tmp_path, word, status, monkeypatch):
    script = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(tmp_path / "store")]
    with subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        run_id = child.stdout.readline().strip()
        assert Storage(tmp_path / "store").get_run(run_id)["status"] == "running"
        with monkeypatch.context() as hidden:
            hidden.setattr("psutil.PROCFS_PATH", "/nonexistent")
            assert Storage(tmp_path / "store").list_runs()[0]["status"] == "running"
        if word:
            child.communicate(word)
        else:
            child.kill()
    storage = Storage(tmp_path / "store")
    assert storage.list_runs()[0]["status"] == status
    assert [point["step"] for point in storage.get_metrics(run_id)] == list(range(100))


@pytest.mark.skipif(sys.platform != "linux", reason="psutil reads /proc on Linux")
def test_a_living_process_is_told_from_one_that_is_gone_where_psutil_sees_none(monkeypatch):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    monkeypatch.setattr("psutil.PROCFS_PATH", "/nonexistent")
    here = platform.this_process()
    assert here[:2] == (os.getpid(), 0.0) and platform.is_alive(here) and platform.pid_runs(os.getpid())
    gone = here._replace(pid=child.pid)
    assert not platform.is_alive(gone) and not platform.pid_runs(child.pid)
