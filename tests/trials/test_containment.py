"""Guard, supervisor, and both killed while a trial has children in sessions of their own that dropped its marker."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from test_hostile import Arena, left_of

from watcherml.trials import members

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="subreapers and /proc of Linux")

# A supervisor of its own, so that it can be killed: it starts the trial, tells its guard's pid, and polls.
SUPERVISOR = """
import json, sys, time
from pathlib import Path
sys.path[:0] = json.loads(sys.argv[1])
from test_hostile import Arena
one = Arena(Path(sys.argv[2])).start("processes:waits")
print(json.dumps({"guard": one.executor._running[one.request.trial_id][2].pid, "mark": one.paths.mark,
                  "ready": str(one.project / "ready")}), flush=True)
while one.executor.poll(one.request.trial_id) is None:
    time.sleep(0.05)
"""
PATHS = [path for path in sys.path if path.endswith(("/tests", "/trials"))]


@pytest.fixture(scope="module")
def supervised(tmp_path_factory):
    """Four supervised trials whose entrypoints wait beside a sleeper each; started together, for time's sake."""
    started = []
    for _ in range(len(KILLS)):
        process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, json.dumps(PATHS), str(tmp_path_factory.mktemp("kept"))],
            stdout=subprocess.PIPE,
        )
        started.append((process, json.loads(process.stdout.readline())))
    for _, told in started:
        deadline = time.monotonic() + 60
        while not os.path.exists(told["ready"]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    yield dict(zip(KILLS, started, strict=True))
    for process, _ in started:
        process.kill()
        process.wait()
        process.stdout.close()


def inner_of(guard):
    """The half of the guard that works."""
    return psutil.Process(guard).children()[0].pid


KILLS = {
    "the guard's outer half": lambda supervisor, guard: [guard],
    "the guard's inner half": lambda supervisor, guard: [inner_of(guard)],
    "the supervisor": lambda supervisor, guard: [supervisor],
    "the supervisor and the outer half": lambda supervisor, guard: [supervisor, guard],
    "the supervisor and the inner half": lambda supervisor, guard: [supervisor, inner_of(guard)],
    "the guard, both halves": lambda supervisor, guard: [inner_of(guard), guard],
}


@pytest.mark.parametrize("killed", KILLS)
def test_whoever_is_killed_no_process_of_the_trial_is_left(supervised, killed):
    process, told = supervised[killed]
    assert len(left_of(told["mark"])) >= 2, "the worker and its sleeper without a marker"
    for pid in KILLS[killed](process.pid, told["guard"]):
        os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    assert left_of(told["mark"], seconds=15) == []
    assert time.monotonic() - began < 15
    if "supervisor" in killed:
        deadline = time.monotonic() + 15
        while psutil.pid_exists(told["guard"]) and psutil.Process(told["guard"]).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, "the guard outlives its trial"
            time.sleep(0.05)


def test_a_supervisor_that_is_not_there_any_more_finds_what_its_whole_guard_left(tmp_path):
    """Everybody who watched is dead at once: the worker dies by the system, its sleeper when somebody looks again."""
    from watcherml.trials.guard import kill_all

    one = Arena(tmp_path).start("processes:waits")
    guard = one.executor._running[one.request.trial_id][2]
    deadline = time.monotonic() + 60
    while not (one.project / "ready").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for pid in (inner_of(guard.pid), guard.pid):
        os.kill(pid, signal.SIGKILL)
    guard.wait()
    assert kill_all(one.paths.mark) >= 1
    assert left_of(one.paths.mark) == []
    assert one.executor.poll(one.request.trial_id).outcome == "lost"


HOPS = """
import os, resource, sys, time
resource.setrlimit(10, (int(sys.argv[1]),) * 2)
for _ in range(8):
    if os.fork() == 0:
        os.setsid()
        while True:  # each generation dies into the next
            time.sleep(0.003)
            if os.fork():
                os._exit(0)
os._exit(0)
"""


def test_what_dies_into_a_child_of_its_own_before_anybody_looks_is_caught_all_the_same(tmp_path):
    mark = f"hops-{tmp_path.name}-{os.getpid()}"
    subprocess.run([sys.executable, "-c", HOPS, str(members._number(mark))], check=True)
    assert members.kill_all(mark) >= 8
    assert not any(members.members(mark) for _ in range(50))
