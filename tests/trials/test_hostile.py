"""Entrypoints that lie, hang, fork, crash, forge and spoil, and the one outcome that each has to have.

All trials of the table run in one fixture, several at a time, each in a store of its own. After each: no process of it
is left (found by its marks, and by a word in the command line of what dropped them), the store is whole, and whatever
is not an honest end keeps no contract, so that nothing can be verified by it.
"""

import hashlib
import os
import shutil
import sqlite3
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from builders import plan as make_plan
from builders import request as make_request

from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.protocol.request import Launch
from watcherml.protocol.result import Trial
from watcherml.sealed.device import Device
from watcherml.store.storage import Storage
from watcherml.trials.guard import members
from watcherml.trials.paths import TrialPaths
from watcherml.trials.runner import LocalExecutor
from watcherml.verdict.eligible import contract_checks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals, /proc and process groups of Linux")
HERE = Path(__file__).parent
PLAN = make_plan(device=Device("none"))
AT_ONCE = 6
GOOD = {"steps_completed": 50, "val_loss": 0.25}
LOG_LIMIT = 100_000

# module:function -> outcome, words of the sentence. An outcome of "counts" is a completed trial that keeps the
# contract: what it did to its process is nobody's business.
TABLE = {
    # -- lies in what is returned
    "returns:honest": ("counts", "after 50 steps (claimed)"),
    "returns:negative": ("completed", "after 0 steps (none)"),
    "returns:fraction_of_a_step": ("completed", "after 0 steps (none)"),
    "returns:endless_steps": ("contract_error", "at most 1000000000000"),
    "returns:endless_marks": ("contract_error", "at most 1000000000000"),
    "returns:more_than_marked": ("completed", "after 7 steps (marks)"),
    "returns:infinite": ("contract_error", "metric 'val_loss': expected a finite number"),
    "returns:boolean_and_text": ("contract_error", "metric 'steps_completed': expected a number"),
    "returns:complex_number": ("contract_error", "metric 'val_loss': expected a number"),
    "returns:odd_numbers": ("counts", "after 50 steps"),
    "returns:one_dimension": ("contract_error", "metric 'val_loss': expected a number"),
    "returns:nested": ("contract_error", "metric 'validation': expected a number"),
    "returns:many": ("contract_error", "at most 1000 metrics; got 10002"),
    "returns:long_name": ("contract_error", "metric name: expected a metric name of 1 to 256"),
    "returns:two_line_name": ("contract_error", "metric name: expected a metric name of 1 to 256"),
    "returns:name_is_a_number": ("contract_error", "metric name"),
    "returns:float_raises": ("contract_error", "raises OSError"),
    "returns:repr_raises": ("contract_error", "expected a number; got <Unprintable>"),
    "returns:items_raise": ("training_failed", "KeyboardInterrupt"),
    "returns:items_without_end": ("contract_error", "at most 1000 metrics; got more"),
    "returns:items_hang": ("timeout", "after its 4 s"),
    "returns:shifting": ("completed", "after 3 steps (claimed)"),
    "returns:name_in_disguise": ("completed", "after 50 steps"),
    "returns:config_is_spoilt": ("counts", "after 50 steps"),
    "returns:AsClass": ("contract_error", "expected a top-level function; got the class AsClass"),
    "returns:as_coroutine": ("contract_error", "got an async or generator function"),
    "returns:as_generator": ("contract_error", "got an async or generator function"),
    "returns:dict": ("contract_error", "no such name"),
    "returns:torch_without_a_step": ("completed", "after 0 steps (none)"),
    # -- awkward ends
    "errors:base_exception": ("training_failed", "Base: not an Exception"),
    "errors:keyboard_interrupt": ("training_failed", "KeyboardInterrupt"),
    "errors:generator_exit": ("training_failed", "GeneratorExit"),
    "errors:exit_with_text": ("training_failed", "SystemExit: all is well"),
    "errors:str_raises": ("training_failed", "Mute: <its text could not be made: Base>"),
    "errors:str_leaves": ("exited", "exit code 0 and no valid report"),
    "errors:str_hangs": ("timeout", "after its 4 s"),
    "errors:wide_text": ("training_failed", "Wide: wide x"),
    "errors:looking_raises": ("training_failed", "Closed"),
    "errors:cyclic_cause": ("training_failed", "ValueError: one"),
    "errors:nested_groups": ("training_failed", "more (1 sub-exception)" if sys.version_info >= (3, 11) else "inner"),
    "errors:recursion": ("training_failed", "RecursionError"),
    "errors:little_recursion": ("counts", "after 50 steps"),
    "errors:memory": ("training_failed", "MemoryError"),
    "errors:warnings_are_errors": ("counts", "after 50 steps"),
    "errors:aborts": ("killed", "SIGABRT"),
    "errors:segv": ("killed", "SIGSEGV"),
    "errors:kills_itself": ("killed", "SIGKILL"),
    "errors:stops_itself": ("timeout", "after its 4 s"),
    "errors:leaves_with_7": ("exited", "exit code 7"),
    "errors:leaves_with_0": ("exited", "exit code 0"),
    "errors:alarm_rings": ("killed", "SIGALRM"),
    "errors:looks_like_oom_in_a_path": ("training_failed", "FileNotFoundError"),
    # -- processes
    "processes:daemons": ("counts", "after 50 steps"),
    "processes:fork_bomb": ("counts", "after 50 steps"),
    "processes:kills_its_group": ("killed", "SIGKILL"),
    "processes:kills_its_guard": ("lost", "not known"),
    "processes:kills_the_outer_guard": ("lost", "not known"),
    "processes:kills_both_guards": ("lost", "not known"),
    "processes:ignores_signals": ("timeout", "after its 4 s"),
    "processes:threads_without_end": ("timeout", "after its 4 s"),
    "processes:exit_handler_hangs": ("timeout", "after its 4 s"),
    "processes:exit_handler_raises": ("counts", "after 50 steps"),
    "processes:exit_handler_leaves": ("exited", "exit code 3"),
    "processes:closes_files": ("counts", "after 50 steps"),
    "processes:closes_all_files": ("exited", "no valid report"),
    "processes:output_raises": ("counts", "after 50 steps"),
    "processes:output_is_redirected": ("counts", "after 50 steps"),
    "processes:one_line_of_200_mb": ("counts", "after 50 steps"),
    "processes:binary_output": ("counts", "after 50 steps"),
    # -- surroundings
    "places:deletes_its_folder": ("counts", "after 50 steps"),
    "places:empties_the_environment": ("counts", "after 50 steps"),
    "places:another_locale": ("counts", "after 50 steps"),
    "places:umask_for_nobody": ("counts", "after 50 steps"),
    "places:umask_for_everybody": ("counts", "after 50 steps"),
    "places:no_file_may_grow": ("counts", "after 50 steps"),
    "places:no_file_may_ever_grow": ("exited", "no valid report"),
    "places:traces": ("training_failed", "RuntimeError: traced"),
    "places:edits_itself": ("counts", "after 50 steps"),
    "places:imports_late": ("counts", "after 50 steps"),
    "places:locks_the_store": ("counts", "after 50 steps"),
    "places:empties_the_store": ("counts", "after 50 steps"),
    "places:patches_the_measure": ("contract_error", "metrics_of: expected this package's own code"),
    "places:patches_the_code": ("contract_error", "watcherml.trials.measure.progress_of"),
    "places:patches_the_counter": ("contract_error", "watcherml.recorder.steps.StepCounter.optimizer_steps"),
    "places:patches_the_record": ("contract_error", "watcherml.protocol.result.WorkerReport.to_json"),
    "places:shadows_a_builtin": ("contract_error", "watcherml.trials.measure.isinstance"),
    "places:replaces_a_module": ("contract_error", "watcherml.trials.measure"),
    "places:patches_and_raises": ("contract_error", "watcherml.trials.measure.metrics_of"),
    "places:patches_the_library": ("counts", "after 50 steps"),
    "places:deletes_the_trial": ("exited", "no valid report"),
    "places:forbids_the_trial": ("counts", "after 50 steps") if os.geteuid() == 0 else ("exited", "no valid report"),
    # -- forged reports and ends
    "reports:forges_everything": ("exited", "exit code 0 and no valid report"),
    "reports:looks_for_the_name": ("exited", "exit code 0 and no valid report"),
    "reports:reads_every_file": ("exited", "exit code 0 and no valid report"),
    "reports:kills_the_guard_and_forges_its_end": ("lost", "not known"),
    "reports:changes_the_report": ("exited", "changed after it had been written"),
    "reports:changes_the_report_in_a_thread": ("exited", "changed after it had been written"),
    "reports:truncates_the_report": ("exited", "changed after it had been written"),
    "reports:blows_up_the_report": ("exited", "bytes, more than"),
    "reports:report_becomes_a_link": ("exited", "not valid"),
    "reports:report_becomes_a_pipe": ("exited", "no valid report"),
    "reports:report_becomes_a_folder": ("exited", "no valid report"),
    "reports:end_is_a_pipe": ("counts", "after 50 steps"),
    "reports:end_is_a_folder": ("counts", "after 50 steps"),
    "reports:end_is_a_link": ("counts", "after 50 steps"),
    "reports:another_request": ("counts", "after 50 steps"),
    "reports:takes_the_claim": ("counts", "after 50 steps"),
    "reports:child_comes_home": ("counts", "after 50 steps"),
    # -- what happens on import
    "import_hangs:train": ("timeout", "after its 4 s"),
    "import_leaves:train": ("training_failed", "SystemExit"),
    "import_dies:train": ("exited", "exit code 0"),
    "import_of_shadows:train": ("counts", "after 50 steps"),
}
SLOW = {  # outcomes that only a clock can bring, and what is loaded slowly: started first
    "processes:stops_its_guard": ("lost", "not known"),
}
TABLE = {**SLOW, **{name: TABLE[name] for name in sorted(TABLE, key=lambda name: "torch" not in name)}}
# Cousins of other rows, for the long form.
LONG = {f"{module}:{function}" for module, functions in {
    "returns": "fraction_of_a_step infinite complex_number nested two_line_name name_is_a_number repr_raises AsClass"
               " as_generator dict one_dimension config_is_spoilt items_hang torch_without_a_step endless_marks",
    "errors": "generator_exit keyboard_interrupt cyclic_cause recursion aborts leaves_with_0 leaves_with_7 alarm_rings"
              " looks_like_oom_in_a_path str_hangs",
    "processes": "exit_handler_raises exit_handler_hangs output_is_redirected ignores_signals kills_the_outer_guard"
                 " kills_its_guard stops_its_guard",
    "places": "another_locale umask_for_everybody traces empties_the_environment patches_the_counter"
              " patches_the_record patches_and_raises forbids_the_trial",
    "reports": "truncates_the_report report_becomes_a_folder report_becomes_a_link end_is_a_link another_request"
               " takes_the_claim changes_the_report_in_a_thread child_comes_home",
    "import_dies": "train",
}.items() for function in functions.split()}  # fmt: skip
TIMEOUTS = dict.fromkeys((name for name, row in TABLE.items() if row[0] == "timeout"), 4.0)
TIMEOUTS["processes:stops_its_guard"] = 20.0

ON_IMPORT = {
    "hostile_import_hangs": "import time\ntime.sleep(600)\n",
    "hostile_import_leaves": "import sys\nsys.exit(0)\n",
    "hostile_import_dies": "import os\nos._exit(0)\n",
    "hostile_import_of_shadows": "import json, random, typing, hashlib, logging\n"
    "assert 'shadow' not in json.__file__\n",
    "hostile_late": "VALUE = 1\n",
}
SHADOWS = ("json", "random", "typing", "hashlib", "logging", "os", "pathlib")


class Arena:
    """Runs rows of the table: each with a project, a store and an executor of its own."""

    def __init__(self, folder):
        self.folder = folder

    def start(self, name, **changes):
        module, _, function = name.partition(":")
        place = self.folder / name.replace(":", "-")
        project = place / "shadow" / "project"
        project.mkdir(parents=True)
        for source in HERE.glob("hostile_*.py"):
            shutil.copy(source, project)
        for other, text in ON_IMPORT.items():
            (project / f"{other}.py").write_text(
                text if other == "hostile_late" else f"{text}\ndef train(config, max_steps=None):\n    return {GOOD}\n"
            )
        if module == "import_of_shadows":
            for other in SHADOWS:
                (project / f"{other}.py").write_text("raise RuntimeError('the wrong one')")
        storage = Storage(place / "store")
        storage.create()
        trial_id = f"{self.folder.name}-{name.replace(':', '-')}"
        request = make_request(
            PLAN, "full", 1, "batch-32x2", entrypoint=TrainingEntrypoint(f"hostile_{module}:{function}"),
            timeout_seconds=TIMEOUTS.get(name, 60.0), grace_seconds=0.5, trial_id=trial_id,
            run_id=f"run-{trial_id}", **changes,
        )  # fmt: skip
        launch = Launch(request.digest, "demo", str(project), str(storage.path), sys.executable, None, LOG_LIMIT)
        executor = LocalExecutor(storage.path)
        executor.submit(request, launch)
        return SimpleNamespace(
            name=name, request=request, launch=launch, executor=executor, storage=storage, project=project,
            paths=TrialPaths.of(storage.path, trial_id),
            code=f"sha256:{hashlib.sha256((project / f'hostile_{module}.py').read_bytes()).hexdigest()}",
        )  # fmt: skip

    def run_all(self, names):
        waiting, running, ended = list(names), [], {}
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                running.append(self.start(waiting.pop(0)))
            for one in list(running):
                one.result = one.executor.poll(one.request.trial_id)
                if one.result is not None:
                    running.remove(one)
                    one.left = left_of(one.paths.mark)
                    ended[one.name] = one
            time.sleep(0.02)
        return ended


def left_of(mark, seconds=0.0):
    """The processes of a trial that live, by their marks or by the word that sleepers carry on their command line."""
    deadline = time.monotonic() + seconds
    while True:
        found = [process.pid for process in members(mark)]
        for process in psutil.process_iter():
            try:
                line = process.cmdline()
                if mark in " ".join(line) and "time.sleep" in " ".join(line) and process.pid not in found:
                    found.append(process.pid)
            except psutil.Error:
                continue
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


@pytest.fixture(scope="module")
def ended(request, tmp_path_factory):
    """All selected rows, run to their ends."""
    mine = [item for item in request.session.items if item.module is request.module]
    names = {one.callspec.params["name"] for one in mine if hasattr(one, "callspec")}
    names |= {name for one in mine if one.originalname in NEEDS for name in NEEDS[one.originalname]}
    return Arena(tmp_path_factory.mktemp("hostile")).run_all([name for name in TABLE if name in names])


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in TABLE]
)
def test_each_has_its_one_outcome_and_leaves_nothing(ended, name):
    if "torch" in name:
        pytest.importorskip("torch")
    one, (outcome, words) = ended[name], TABLE[name]
    result = one.result
    stderr = one.paths.stderr.read_text("utf-8", "replace") if one.paths.stderr.exists() else ""
    shown = f"{result.outcome}: {result.sentence}\n{stderr[-2000:]}"
    assert result.outcome == ("completed" if outcome == "counts" else outcome), shown
    assert words in result.sentence, shown
    assert one.left == []
    broken = [check for check in contract_checks(PLAN, (), Trial(one.request, result)) if check.outcome != "pass"]
    judged = [one.name for one in broken if one.name.startswith(("outcome", "execution", "exit", "progress", "metric"))]
    assert (judged == []) == (outcome == "counts"), judged
    assert_sound(one)


def assert_sound(one):
    connection = sqlite3.connect(one.storage.path / "watcherml.db")
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    again = Storage(one.storage.path)
    assert again.list_runs() == []  # trials are not among ordinary runs
    # A run whose process was killed is found so by whoever next looks for its process.
    if one.name not in ("places:empties_the_store", "places:locks_the_store") and one.result.outcome in STATUSES:
        row = again.get_run(one.request.run_id)
        assert row["status"] in STATUSES[one.result.outcome], row["status"]


STATUSES = {
    "completed": ("success",),
    "training_failed": ("failed", "interrupted"),
    "contract_error": ("failed",),
}


def test_numbers_of_other_libraries_are_the_numbers_they_are(ended):
    third = 1 / 3
    expected = {"steps_completed": 50.0, "val_loss": 0.25, "half": 0.5, "third": third, "none_dim": 2.0}
    assert ended["returns:odd_numbers"].result.metrics == expected
    assert ended["returns:name_in_disguise"].result.metrics == {"steps_completed": 50.0, "loss": 0.25}
    assert ended["returns:shifting"].result.metrics == {"steps_completed": 3.0, "val_loss": 0.25}


def test_the_code_of_a_trial_is_what_ran_and_not_what_it_left(ended):
    own = "hostile_places.py"
    edited = ended["places:edits_itself"]
    assert edited.result.identity.code.files == {own: edited.code}
    assert (edited.project / own).read_text().endswith("# another function by now\n")
    late = ended["places:imports_late"]
    first = "sha256:" + hashlib.sha256(ON_IMPORT["hostile_late"].encode()).hexdigest()
    assert late.result.identity.code.files == {own: late.code, "hostile_late.py": first, "module hostile_late": first}


def test_logs_of_any_size_stay_within_their_bound(ended):
    for name in ("processes:one_line_of_200_mb", "processes:binary_output"):
        size = ended[name].paths.stdout.stat().st_size
        assert LOG_LIMIT // 2 < size < LOG_LIMIT + 1_000, (name, size)
        assert b"bytes left out" in ended[name].paths.stdout.read_bytes()


# What a test needs beside its own row.
NEEDS = {
    "test_numbers_of_other_libraries_are_the_numbers_they_are": [
        "returns:odd_numbers", "returns:name_in_disguise", "returns:shifting",
    ],
    "test_the_code_of_a_trial_is_what_ran_and_not_what_it_left": ["places:edits_itself", "places:imports_late"],
    "test_logs_of_any_size_stay_within_their_bound": ["processes:one_line_of_200_mb", "processes:binary_output"],
}  # fmt: skip
