"""A program that ends without ``finish()``: its run is judged by how the program ended."""

import subprocess
import sys
import weakref

import pytest

import watcherml
from watcherml.recorder import exits

HEAD = "import os, sys, watcherml\nrun = watcherml.init('p', {}, sys.argv[1])\nrun.log_metric('x', 1.0, step=3)\n"
CAUGHT = "def caught(code):\n    try: sys.exit(code)\n    except SystemExit: pass\n"
NO_FINISH = "the process ended without finish()"

CASES = {
    "falls off the end": ("", 0, "success", NO_FINISH),
    "sys.exit()": ("sys.exit()", 0, "success", "sys.exit(0)"),
    "sys.exit(0)": ("sys.exit(0)", 0, "success", "sys.exit(0)"),
    "sys.exit(False)": ("sys.exit(False)", 0, "success", "sys.exit(0)"),
    "sys.exit(3)": ("sys.exit(3)", 3, "failed", "SystemExit"),
    "a message": ("sys.exit('no data')", 1, "failed", "SystemExit"),
    "exit(2)": ("exit(2)", 2, "failed", "SystemExit"),
    "quit()": ("quit()", 0, "success", "sys.exit(0)"),
    "from a function": ("def main():\n    sys.exit(5)\nmain()", 5, "failed", "SystemExit"),
    "through finally": ("try: sys.exit(5)\nfinally: print('last words')", 5, "failed", "SystemExit"),
    "raised again": (
        "try: sys.exit(5)\nexcept SystemExit as error:\n    kept = error\n    raise", 5, "failed", "SystemExit",
    ),
    "a caught exit, then the end": (CAUGHT + "caught(5)", 0, "success", NO_FINISH),
    "a caught exit, then another": (CAUGHT + "caught(5)\nsys.exit(0)", 0, "success", "sys.exit(0)"),
    "a caught exit, then an error": (CAUGHT + "caught(0)\nraise ValueError('x')", 1, "failed", "ValueError"),
    "a caught exit that is kept": (
        "try: sys.exit(5)\nexcept SystemExit as error: kept = error", 0, "success", NO_FINISH,
    ),
    "an exit of another thread": (
        "import threading\none = threading.Thread(target=sys.exit, args=(5,))\none.start()\none.join()",
        0, "success", NO_FINISH,
    ),
    "an exit that another thread keeps": (
        "import threading\nkept = []\ndef leave():\n    try: sys.exit(5)\n"
        "    except SystemExit as error: kept.append(error)\n"
        "one = threading.Thread(target=leave)\none.start()\none.join()\nraise SystemExit(0)",
        0, "interrupted", exits.UNKNOWN_EXIT,
    ),
    "raise SystemExit": ("raise SystemExit(3)", 3, "interrupted", exits.UNKNOWN_EXIT),
    "an exception": ("raise ValueError('boom')", 1, "failed", "ValueError"),
    "an exit, then an error in finally": (
        "try: sys.exit(0)\nfinally: open('/nonexistent/a/b', 'wb')", 1, "failed", "FileNotFoundError",
    ),
    "an exit, then an error while it is handled": (
        "try: sys.exit(0)\nexcept SystemExit: raise RuntimeError('x')", 1, "failed", "RuntimeError",
    ),
    "an exit that is kept, then an error": (
        "try: sys.exit(0)\nexcept SystemExit as error: kept = error\nraise RuntimeError('x')",
        1, "failed", "RuntimeError",
    ),
    "an exit that is kept, then another of unknown code": (
        "try: sys.exit(0)\nexcept SystemExit as error: kept = error\nraise SystemExit(5)",
        5, "interrupted", exits.UNKNOWN_EXIT,
    ),
    "an exit in a hook for an error": (
        "sys.excepthook = lambda *_: sys.exit(0)\nraise ValueError('x')", 0, "failed", "ValueError",
    ),
    "an error that was caught and put down, then an exit": (
        "try: 1/0\nexcept Exception as error: sys.last_value = sys.last_exc = error\nsys.exit(0)",
        0, "success", "sys.exit(0)",
    ),
    "sys.exit(0.0)": ("sys.exit(0.0)", 1, "failed", "SystemExit"),
    "an exception that was reported": (
        "import code\ncode.InteractiveInterpreter().runsource('1/0')", 0, "success", NO_FINISH,
    ),
    # CPython forgets that it was Ctrl-C when any thread compiles text meanwhile, as named tuples do: facts first.
    "Ctrl-C": (
        "import signal\nrun.join_facts()\nos.kill(os.getpid(), signal.SIGINT)\nfor _ in range(10**9): pass",
        -2, "interrupted", "KeyboardInterrupt",
    ),
    "another's sys.exit": ("mine = sys.exit\nsys.exit = lambda *a: mine(*a)\nsys.exit(4)", 4, "failed", "SystemExit"),
    "a run started in a thread": (
        "run.finish()\nimport threading\n"
        "one = threading.Thread(target=watcherml.init, args=('late', {}, sys.argv[1]))\none.start()\n"
        "one.join()\nsys.exit(6)",
        6, "failed", "SystemExit",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_an_open_run_is_judged_by_how_its_program_ended(storage, tmp_path, case):
    body, code, status, reason = CASES[case]
    (tmp_path / "train.py").write_text(HEAD + body)
    done = subprocess.run([sys.executable, "train.py", str(storage.path)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    # An exit that another error replaces is shown with the frame that noted it.
    said = [line for line in done.stderr.lower().splitlines() if "exits.py" not in line]
    assert "watcherml" not in "".join(said)
    row = storage.list_runs()[0]
    assert (row["status"], row["end_reason"]) == (status, reason)
    if status == "failed":
        assert storage.get_capsule(row["run_id"])
    if len(storage.list_runs()) == 1:
        assert [point["value"] for point in storage.get_metrics(row["run_id"])] == [1.0]


@pytest.mark.parametrize("how", [["-m", "train"], ["-c", "import train"]])
@pytest.mark.parametrize(("body", "status"), [("", "success"), ("sys.exit(3)", "failed")])
def test_it_does_not_matter_how_the_program_was_started(storage, tmp_path, how, body, status):
    (tmp_path / "train.py").write_text(HEAD + body)
    subprocess.run([sys.executable, *how, str(storage.path)], cwd=tmp_path, capture_output=True)
    assert [row["status"] for row in storage.list_runs()] == [status]


def test_a_prompt_that_is_left_has_come_to_the_end_of_nothing(storage, tmp_path):
    typed = HEAD + "1/0\n"
    subprocess.run(
        [sys.executable, "-i", "-", str(storage.path)], cwd=tmp_path, capture_output=True, input=typed, text=True
    )
    (row,) = storage.list_runs()
    assert (row["status"], row["end_reason"]) == ("interrupted", NO_FINISH)


def test_what_cells_of_ipython_have_met_does_not_end_the_run_of_the_session(storage, tmp_path, monkeypatch):
    pytest.importorskip("IPython")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    # An error from before the run, one after it, and an exit that IPython catches; then the person leaves.
    open_run = f"import sys, watcherml; run = watcherml.init('p', {{}}, {str(storage.path)!r})\n"
    command = [sys.executable, "-m", "IPython", "--simple-prompt", "--no-confirm-exit", "--no-banner"]
    for typed in (f"1/0\n{open_run}", f"{open_run}1/0\nsys.exit(3)\n"):
        subprocess.run(command, cwd=tmp_path, capture_output=True, input=typed, text=True)
    found = [(row["status"], storage.get_run(row["run_id"])["end_reason"]) for row in storage.list_runs()]
    assert found == [("interrupted", NO_FINISH)] * 2


def test_a_script_that_ipython_executes_fails_with_its_exit_code(storage, tmp_path, monkeypatch):
    pytest.importorskip("IPython")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    (tmp_path / "train.py").write_text(
        f"import sys, watcherml\nwatcherml.init('p', {{}}, {str(storage.path)!r})\nsys.exit(4)"
    )
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--no-banner", "train.py"], cwd=tmp_path, capture_output=True
    )
    assert (done.returncode, [row["status"] for row in storage.list_runs()]) == (4, ["failed"])


@pytest.mark.parametrize("typed", ["", "exit()\n", "x = 1\nexit(0)\n"])
def test_a_script_that_died_before_its_prompt_has_failed(storage, tmp_path, typed):
    (tmp_path / "train.py").write_text(HEAD + "raise ValueError('boom')")
    subprocess.run(
        [sys.executable, "-i", "train.py", str(storage.path)], cwd=tmp_path, capture_output=True, input=typed, text=True
    )
    (row,) = storage.list_runs()
    assert (row["status"], row["end_reason"]) == ("failed", "ValueError")


WORKER = """
import multiprocessing, os, sys, watcherml

def work(path, how):
    run = watcherml.init('worker', {}, path)
    run.log_metric('x', 1.0)
    if how == 'exit': sys.exit(3)
    if how == 'exit 0': sys.exit(0)
    if how == 'raise': raise ValueError('boom')
    if how == 'kill': os.kill(os.getpid(), 9)
    if how == 'finish': run.finish()

if __name__ == '__main__':
    outer = watcherml.init('outer', {}, sys.argv[1])
    one = multiprocessing.get_context(sys.argv[2]).Process(target=work, args=sys.argv[1::2])
    one.start()
    one.join()
    outer.finish()
    sys.exit(one.exitcode)
"""
ENDINGS = {
    "end": (0, "success", NO_FINISH),
    "finish": (0, "success", ""),
    "exit 0": (0, "success", None),
    "exit": (3, "failed", "SystemExit"),
    "raise": (1, "failed", "ValueError"),
    "kill": (247, "killed", None),
}


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("how", ENDINGS)
def test_a_worker_of_multiprocessing_ends_its_own_run(storage, tmp_path, how, method):
    code, status, reason = ENDINGS[how]
    (tmp_path / "train.py").write_text(WORKER)
    done = subprocess.run(
        [sys.executable, "train.py", str(storage.path), method, how], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == code, done.stderr
    storage.settle()
    rows = {row["project"]: row for row in storage.list_runs()}
    assert set(rows) == {"outer", "worker"} and rows["outer"]["status"] == "success"
    assert rows["worker"]["status"] == status and (reason is None or rows["worker"]["end_reason"] == reason)
    assert len(storage.get_metrics(rows["worker"]["run_id"])) == 1
    if how == "raise":
        capsule = storage.get_capsule(rows["worker"]["run_id"])
        assert capsule["failure"]["exception_type"] == "ValueError" and "boom" in done.stderr


def test_a_forked_child_does_not_end_the_run_of_its_parent(storage, tmp_path):
    (tmp_path / "train.py").write_text(
        HEAD + "pid = os.fork()\nif pid == 0: sys.exit(5)\nassert os.waitpid(pid, 0)[1] == 5 << 8\nrun.finish()\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "train.py", str(storage.path)], cwd=tmp_path)
    (row,) = storage.list_runs()
    assert done.returncode == 0 and row["status"] == "success"


WATCHED = """
import sys, watcherml
before = sys.exit
first, second = (watcherml.Run("p", {}, sys.argv[1], quiet=True).start() for _ in range(2))
assert sys.exit is not before and sys.exit.__name__ == "exit"
try: sys.exit(7)
except SystemExit as error: assert error.code == 7 and type(error) is SystemExit
first.finish()
assert sys.exit is not before
second.finish()
assert sys.exit is before
print("held")
"""


def test_exits_are_watched_while_a_run_is_open_and_no_longer(storage):
    # In a process of its own: another test may have left a run open here.
    done = subprocess.run([sys.executable, "-c", WATCHED, str(storage.path)], capture_output=True, text=True)
    assert done.stdout == "held\n", done.stderr


def test_a_caught_exit_keeps_nothing_of_the_program_alive(storage):
    class Tensor:
        pass

    def leave():
        tensor = Tensor()
        alive.append(weakref.ref(tensor))
        sys.exit(tensor and 1)

    alive = []
    with watcherml.Run("p", {}, storage, quiet=True):
        try:
            leave()
        except SystemExit:
            pass
        assert alive[0]() is None
