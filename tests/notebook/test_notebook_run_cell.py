"""``%%watcher run``: the cell is an ordinary cell and a run of its own, whatever its body does."""

import re
import shlex
import sys

import pytest
from notebook_shell import INIT, OOM

from watcherml.notebook import run_cell
from watcherml.notebook.session import Session

FAIL = f"raise RuntimeError({OOM!r})"


def row(notebook, name="run"):
    return notebook.store.get_run(notebook[name].run_id)


def capsules(outcome):
    """Return how many failure panels and releases a cell has shown."""
    return outcome.html.count('class="wml-failure"'), outcome.text.count("Memory given back")


def refusal(outcome):
    assert type(outcome.error).__name__ == "UsageError", outcome.error
    return str(outcome.error)


def test_a_cell_becomes_a_run_with_the_configuration_in_config(notebook, capsys):
    notebook.run("config = {'batch_size': 8, 'training_steps': 2}")
    outcome = notebook.run(
        "%%watcher run --project 'the cell'\n"
        "import math\nfor step in range(2):\n    run.log_metric('loss', 1 / (step + 1), step)\n"
        "left = %pwd\nmath.floor(2.5)"
    )
    assert outcome.error is None and outcome.value == 2 and outcome.shown == []
    found = row(notebook)
    assert (found["status"], found["project"]) == ("success", "the cell")
    assert found["config"] == {"batch_size": 8, "training_steps": 2}
    assert len(notebook.store.get_metrics(found["run_id"])) == 2
    assert notebook["step"] == 1 and notebook["left"]
    assert found["run_id"] in capsys.readouterr().out  # the receipt
    assert notebook["run"].status == "success"
    (cell,) = notebook.store.evidence.cells(run_id=found["run_id"])
    assert cell["source"].startswith("%%watcher run") and cell["status"] == "ok"


def test_a_failure_is_shown_once_gives_memory_back_once_and_passes_unchanged(notebook):
    notebook.run("config = {'batch_size': 64, 'training_steps': 6}\nerror = None\nclass Big: pass")
    notebook.run(INIT.replace("run =", "outer ="))
    source = (
        "%%watcher run --name inner\nimport weakref\ndef train():\n    big = Big()\n    seen.append(weakref.ref(big))\n"
        f"    {FAIL}\nseen = []\ntrain()"
    )
    outcome = notebook.run(source)
    assert type(outcome.error) is RuntimeError and str(outcome.error) == OOM
    assert capsules(outcome) == (1, 1)
    assert notebook["seen"][0]() is None
    found = row(notebook, "inner")
    assert (found["status"], found["config"]["batch_size"]) == ("failed", 64)
    capsule = notebook.store.get_capsule(found["run_id"])
    history = next(one for one in capsule["evidence"] if one["id"] == "EV-11")["data"]
    assert [cell["source"] for cell in history].count(source) == 1
    # The run that was open before is as it was: no failure, and still going on.
    assert notebook["outer"].status == "running"
    with pytest.raises(LookupError):
        notebook.store.get_capsule(notebook["outer"].run_id)


def test_the_traceback_is_printed_once_with_the_lines_of_the_cell(notebook, capsys):
    notebook.run("%%watcher run\nx = 1\n\n1 / 0  # here")
    printed = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert printed.count("ZeroDivisionError: division by zero") == 1
    assert "----> 4 1 / 0 # here" in " ".join(printed.split())
    assert "run_cell.py" not in printed


def test_a_failed_cell_is_what_recover_starts_from(notebook):
    notebook.run("config = {'batch_size': 32, 'gradient_accumulation_steps': 1, 'training_steps': 6}")
    notebook.run(f"%%watcher run\n{FAIL}")
    run_id, _ = Session.of(notebook.shell).source_run(None)
    assert run_id == notebook["run"].run_id
    notebook.run(f"%%watcher run --name second\n{FAIL}")
    assert Session.of(notebook.shell).source_run(None)[0] == notebook["second"].run_id
    assert [one["status"] for one in notebook.store.list_runs()] == ["failed", "failed"]


# name: (body, run's status, error, (panels, releases))
ENDINGS = {
    "exits": ("raise SystemExit", "success", SystemExit, (0, 0)),
    "exits with a code": ("raise SystemExit(3)", "failed", SystemExit, (1, 0)),
    "is interrupted": ("raise KeyboardInterrupt", "interrupted", KeyboardInterrupt, (0, 0)),
    "has a typo": ("undefined_name", "failed", NameError, (1, 0)),
    "ends its run itself": ("run.finish()\nx = 1", "success", None, (0, 0)),
    "fails after its run has ended": ("run.finish()\n1 / 0", "success", ZeroDivisionError, (0, 0)),
    "deletes the configuration": ("del config", "success", None, (0, 0)),
    "awaits": ("import asyncio\nawait asyncio.sleep(0)", "success", None, (0, 0)),
    "has magics": ("%time y = 1\n!true\nx = %pwd", "success", None, (0, 0)),
    "has a cell magic": ("%%time\nx = 1", "success", None, (0, 0)),
    "has a future statement": (
        "'''doc'''\nfrom __future__ import annotations  # first\nx: Later = 1", "success", None, (0, 0)
    ),
    "runs a script that fails": ("%run script.py", "failed", None, (1, 0)),
    "catches an out of memory": (f"try:\n    {FAIL}\nexcept RuntimeError:\n    pass", "success", None, (0, 0)),
}  # fmt: skip


def ending(notebook, body, error):
    """Run a body in a run cell and return how its run ended, whether its error passed, and what was shown how often."""
    notebook.run("config = {'batch_size': 8}\nrun = None")
    outcome = notebook.run(f"%%watcher run\n{body}")
    assert type(outcome.error) is (error or type(None)), (body, outcome.error)
    assert row(notebook)["config"] == {"batch_size": 8}
    return notebook["run"].status, error, capsules(outcome)


@pytest.mark.filterwarnings("ignore:To exit")
def test_a_run_ends_as_its_cell_does(notebook, tmp_path):
    (tmp_path / "script.py").write_text("1 / 0")
    found = {case: ending(notebook, body, error) for case, (body, _, error, _) in ENDINGS.items()}
    assert found == {case: (status, error, shown) for case, (_, status, error, shown) in ENDINGS.items()}


def test_a_body_that_unloads_the_extension_leaves_an_open_run(notebook):
    outcome = notebook.run("%%watcher run\n%unload_ext watcherml")
    assert outcome.error is None and notebook["run"].status == "running"


def test_a_magic_in_the_body_decides_what_becomes_of_its_exception(notebook):
    notebook.run("%%watcher run\n%%capture caught\nraise ValueError(1)")
    assert notebook["run"].status in ("failed", "success") and Session.of(notebook.shell).cell_runs == []


def test_a_syntax_error_starts_no_run(notebook, tmp_path):
    assert isinstance(notebook.run("%%watcher run\ndef broken(:").error, SyntaxError)
    assert "run" not in notebook.shell.user_ns and not (tmp_path / ".watcherml").exists()


def test_names_of_the_body_stay_and_the_run_is_named_where_its_variable_is_taken(notebook):
    outcome = notebook.run("%%watcher run\nrun = 'mine'\nconfig = {'late': 1}")
    assert notebook["run"] == "mine" and notebook["config"] == {"late": 1}
    (found,) = notebook.store.list_runs()
    assert found["run_id"] in outcome.text and found["status"] == "success" and found["config"] == {}
    # Now the variable is the person's, and a run may not take it away.
    assert "--name" in refusal(notebook.run("%%watcher run\nx = 1"))
    assert notebook["run"] == "mine" and "x" not in notebook.shell.user_ns


def test_a_body_that_calls_init_has_two_runs(notebook):
    notebook.run("%%watcher run --name whole\nimport watcherml\nrun = watcherml.init('inner', {'a': 1})")
    assert (notebook["whole"].status, notebook["run"].status) == ("success", "running")
    failed = notebook.run(f"%%watcher run --name other\nwith watcherml.init('third') as third:\n    {FAIL}")
    assert [notebook[name].status for name in ("other", "third", "run")] == ["failed", "failed", "running"]
    assert capsules(failed) == (1, 1)


CLASS = "import dataclasses\n@dataclasses.dataclass\nclass"
CONFIGS = {
    "a mapping": ("import types\nconfig = types.MappingProxyType({'a': 1})", "", {"a": 1}, ""),
    "a namespace": ("import argparse\nconfig = argparse.Namespace(a=1)", "", {"a": 1}, ""),
    "a dataclass": (f"{CLASS} C:\n    a: int = 1\nconfig = C()", "", {"a": 1}, ""),
    "a class of them": (f"{CLASS} config:\n    a: int = 1", "", {}, "`config` is a type"),
    "another name": ("mine = {'b': 2}\nconfig = {'a': 1}", "--config mine", {"b": 2}, ""),
    "nothing": ("", "", {}, "no variable config"),
    "a module": ("import math as config", "", {}, "`config` is a module"),
}  # fmt: skip


def test_the_configuration_is_that_of_the_variable_or_said_to_be_missing(notebook):
    for case, (before, flags, config, told) in CONFIGS.items():
        notebook.run(f"config = None\n{before}")
        outcome = notebook.run(f"%%watcher run {flags}\nx = 1")
        assert row(notebook)["config"] == config, case
        text = " ".join(outcome.text.split())
        assert told in text and bool(told) == ("--config NAME" in text), case


REFUSED = {
    "an empty body": ("", "\n\n", "a body below the first line"),
    "a body of comments": ("", "# nothing\n", "a body below the first line"),
    "a configuration that is not there": ("--config nothing_here", "x = 1", "nothing_here"),
    "a configuration that is a list": ("--config listed", "x = 1", "listed, a list"),
    "an unknown flag": ("--wat", "x = 1", "--wat"),
    "an open quote": ("--project 'x", "x = 1", "balanced quotes"),
    "a name that is no variable": ("--name 1x", "x = 1", "--name"),
    "a word of Python": ("--name class", "x = 1", "--name"),
    "a project that is too long to be one": ("--name _x", "x = 1", "--name"),
}


def test_what_cannot_be_recorded_is_refused_before_anything_is_executed(notebook, tmp_path):
    notebook.run("listed = [1]")
    answers = {
        case: refusal(notebook.run(f"%%watcher run {flags}\n{body}")) for case, (flags, body, _) in REFUSED.items()
    }
    assert {case: text for case, text in answers.items() if REFUSED[case][2] not in text} == {}
    assert "x" not in notebook.shell.user_ns and not (tmp_path / ".watcherml").exists()


def test_help_executes_nothing(notebook):
    page = notebook.run("%%watcher run --help\nx = 1").value
    assert "--config" in page.text() and "x" not in notebook.shell.user_ns
    for line in ("%watcher help run", "%%watcher run --help", "%%watcher run -h\n\n", "%watcher run --help"):
        assert notebook.run(line).value.text() == page.text()
    assert "--metric" in notebook.run("%%watcher recover --help").value.text()


def test_a_magic_that_runs_its_body_as_a_cell_ends_the_run_with_that_body(notebook):
    shell = notebook.shell
    shell.register_magic_function(lambda line, cell: shell.run_cell(cell) and None, "cell", "twice")
    outcome = notebook.run(f"%%twice\n%%watcher run\n{FAIL}")
    assert notebook["run"].status == "failed" and capsules(outcome) == (1, 1)
    assert Session.of(shell).cell_runs == []


@pytest.mark.parametrize("project", ["it's", "back\\slash"])
def test_a_call_from_code_hands_its_flags_on_as_they_are(notebook, project):
    line = f"run --project {shlex.quote(project)}"
    notebook.run(f"get_ipython().run_cell_magic('watcher', {line!r}, 'y = 2')")
    assert row(notebook)["project"] == project


def test_code_that_calls_the_magic_gets_a_run_and_the_exception(notebook):
    notebook.run("get_ipython().run_cell_magic('watcher', 'run --name one', 'y = 2')")
    assert notebook["y"] == 2 and notebook["one"].status == "success"
    notebook.run(INIT.replace("run =", "outer ="))
    call = f"get_ipython().run_cell_magic('watcher', 'run --name two', {FAIL!r})"
    caught = f"try:\n    {call}\nexcept RuntimeError:\n    caught = 1"
    outcome = notebook.run(caught)
    assert (outcome.error, notebook["caught"], notebook["two"].status) == (None, 1, "failed")
    assert capsules(outcome) == (1, 1)
    through = notebook.run(f"get_ipython().run_cell_magic('watcher', 'run --name three', {FAIL!r})")
    assert type(through.error) is RuntimeError and capsules(through) == (1, 1)
    assert notebook["outer"].status == "running"


def test_a_cell_within_a_run_cell_is_part_of_it(notebook):
    outcome = notebook.run(
        "%%watcher run\nget_ipython().run_cell('z = 1')\nseen = run.status\n%%watcher run --name inner\nw = 2"
    )
    assert outcome.error is not None  # a cell magic in the middle of a cell is no Python
    notebook.run("%%watcher run\nget_ipython().run_cell('z = 1')\nseen = run.status")
    assert (notebook["seen"], notebook["run"].status) == ("running", "success")
    notebook.run("%%watcher run\n%%watcher run --name inner\nseen = (run.status, inner.status)")
    assert notebook["seen"] == ("running", "running")
    assert (notebook["run"].status, notebook["inner"].status) == ("success", "success")


def test_a_store_that_cannot_be_written_harms_no_cell(notebook, tmp_path):
    (tmp_path / ".watcherml").write_text("a file, so that no folder can be made here")
    with pytest.warns(RuntimeWarning, match="could not record"):
        outcome = notebook.run("%%watcher run\nx = 41 + 1")
    assert outcome.error is None and notebook["x"] == 42


def test_unloading_takes_the_transformation_back(notebook):
    transformers = notebook.shell.input_transformers_cleanup
    assert transformers.count(run_cell.transform) == 1
    notebook.run("%reload_ext watcherml")
    assert transformers.count(run_cell.transform) == 1
    notebook.run("%unload_ext watcherml")
    assert run_cell.transform not in transformers
    assert "watcher" in str(notebook.run("%%watcher run\nx = 1").error)


@pytest.mark.parametrize(
    "cell",
    [
        "x = 1",
        "%%watcher runs\nx = 1",
        "%%watcher run-away\nx = 1",
        "%watcher run\nx = 1",
        "%%watcher run\n",
        "%%time\nx = 1",
        "",
    ],
)
def test_other_cells_are_left_as_they_are(cell):
    lines = cell.splitlines(keepends=True)
    assert run_cell.transform(list(lines)) == lines


def test_lines_keep_their_numbers():
    body = "from __future__ import annotations\n\nx = 1\n"
    for cell in ("%%watcher run\nx = 1\ny = 2\n", f"%%watcher run --name a\n{body}"):
        lines = cell.splitlines(keepends=True)
        changed = run_cell.transform(list(lines))
        assert len(changed) == len(lines) and changed[-1] == lines[-1]
        compile("".join(changed), "cell", "exec")
    assert sys.version_info >= (3, 10)
