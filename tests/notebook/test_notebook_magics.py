"""``%watcher`` and ``%%watcher recover``: what they show, what they write, and what they refuse by name."""

import pytest
from notebook_shell import CONFIG, INIT, OOM, SHORT, TRAIN

from watcherml.errors import InvalidEntrypoint
from watcherml.notebook import body, magics, recover


def refusal(outcome):
    """Return the one line that a magic was refused with."""
    assert type(outcome.error).__name__ == "UsageError", outcome.error
    return str(outcome.error)


# -- %watcher --------------------------------------------------------------------------------------------------------


def test_help_names_every_command(notebook):
    text = notebook.run("%watcher help").value.text()
    for name in magics.COMMANDS:
        assert f"%watcher {name}" in text
    assert "%%watcher recover" in text
    assert notebook.run("%watcher").value.text() == text


def test_an_unknown_word_is_answered_with_the_known_ones(notebook):
    found = refusal(notebook.run("%watcher <b>nonsense</b>"))
    assert "status" in found and "recovery" in found and "nonsense" in found


def test_the_project_is_the_default_of_init(notebook):
    assert "No project is set" in notebook.run("%watcher project").value.text()
    notebook.run("%watcher project 'the tomato disease'")
    notebook.run("import watcherml\nrun = watcherml.init()")
    assert notebook["run"].project == "the tomato disease"
    assert "tomato" in notebook.run("%watcher project").value.text()
    assert "400" in refusal(notebook.run(f"%watcher project {'x' * 500}"))


def test_status_shows_the_open_run_and_the_number_of_cells(notebook):
    assert "none is open" in notebook.run("%watcher status").value.text()
    notebook.run(INIT)
    text = notebook.run("%watcher status").value.text()
    assert notebook["run"].run_id in text and "4 cells" in text and "made by the first run" not in text


def test_lists_are_empty_without_a_store_and_make_none(notebook, tmp_path):
    for word in ("runs", "failures", "recoveries"):
        assert "No " in notebook.run(f"%watcher {word}").value.text()
    assert not (tmp_path / ".watcherml").exists()


def test_runs_failures_and_inspect_show_what_is_on_record(failed):
    run_id = failed["run"].run_id
    assert run_id in failed.run("%watcher runs --limit 5").value.text()
    assert run_id in failed.run("%watcher failures --unresolved").value.html()
    page = failed.run(f"%watcher inspect {run_id}").value
    assert "CUDA out of memory" in page.text() and "Configuration" in page.html()
    assert "no run" in refusal(failed.run("%watcher inspect nobody"))
    assert "RUN_ID" in refusal(failed.run("%watcher inspect"))


@pytest.mark.parametrize("line", ["runs --limit", "runs --nonsense", "free --all", "runs 'open", "recovery a b"])
def test_flags_that_do_not_parse_are_refused(notebook, line):
    assert refusal(notebook.run(f"%watcher {line}"))


@pytest.mark.parametrize("word", ["recovery", "stop", "resume"])
def test_a_campaign_that_does_not_exist_is_refused(failed, word):
    assert "no campaign" in refusal(failed.run(f"%watcher {word} nothing-here"))
    assert "no recovery campaign" in refusal(failed.run(f"%watcher {word}"))


def test_free_has_nothing_to_do_without_a_failure(notebook):
    assert "no exception is remembered" in notebook.run("%watcher free;").value.text()


def test_a_value_at_the_end_of_a_cell_has_faces(failed):
    panel = failed.run(f"%%watcher recover\n{TRAIN}").value
    failed["plan"] = panel.plan
    sources = {"run": "CUDA out of memory", "recovery.preparation": "may run", "plan": "may run"}
    for source, words in sources.items():
        bundle, _ = failed.shell.display_formatter.format(failed.run(source).value)
        assert words in bundle["text/plain"] and words in bundle["text/html"]
    failed.run("%unload_ext watcherml")
    bundle, _ = failed.shell.display_formatter.format(panel.plan)
    assert "text/html" in bundle  # a public value needs no extension for its faces


def test_doctor_tells_what_works_here(notebook, monkeypatch):
    from watcherml.api import doctor

    found = [doctor.Finding("psutil", "ok", "It works."), doctor.Finding("<b>", "fail", "Broken.", "Mend it.")]
    monkeypatch.setattr(doctor, "examine", lambda storage: iter(found))
    page = notebook.run("%watcher doctor").value
    assert "ok    psutil: It works." in page.text() and "fail  <b>: Broken. Mend it." in page.text()
    assert "&lt;b&gt;" in page.html() and "<b>" not in page.html()


# -- %%watcher recover -----------------------------------------------------------------------------------------------


def test_recover_writes_the_body_checks_it_and_returns_a_plan_at_once(failed, tmp_path):
    outcome = failed.run(f"%%watcher recover {SHORT}\n{TRAIN}")
    panel = outcome.value
    assert failed["recovery"] is panel
    written = (tmp_path / body.DEFAULT_FILE).read_text().splitlines()
    assert "Written by WatcherML from a notebook cell" in written[0] and "def train(config, max_steps=None):" in written
    assert panel.plan.source.run_id == failed["run"].run_id
    assert panel.plan.contract.entrypoint.target == "recovery_entrypoint:train"
    assert panel.plan.contract.verification.minimum_progress_steps == CONFIG["training_steps"]
    assert panel.campaign is None and panel.result is None
    assert failed.store.audit.campaigns() == []
    for call in ("recovery.start()", "recovery.wait()", "recovery.reject("):
        assert call in panel.text() and call in panel.html()


def test_the_same_body_again_and_a_changed_body_are_both_taken(failed, tmp_path):
    failed.run(f"%%watcher recover\n{TRAIN}")
    failed.run(f"%%watcher recover --name second\n{TRAIN}")
    assert failed["second"].plan.digest
    changed = TRAIN.replace("0.4", "0.5")
    failed.run(f"%%watcher recover\n{changed}")
    assert "0.5" in (tmp_path / body.DEFAULT_FILE).read_text()


def test_a_function_in_a_file_needs_no_body(failed, tmp_path):
    (tmp_path / "mine.py").write_text(TRAIN)
    panel = failed.run("%watcher recover --entrypoint mine:train --name plan").value
    assert panel.plan.contract.entrypoint.target == "mine:train" and failed["plan"] is panel
    found = refusal(failed.run(f"%%watcher recover --entrypoint mine:train\n{TRAIN}"))
    assert "--entrypoint" in found and "both" in found
    assert "neither" in refusal(failed.run("%%watcher recover\n\n"))


def test_unguarded_metrics_are_named_with_the_flag(notebook):
    notebook.run(INIT)
    notebook.run(f"run.log({{'loss': 0.5, 'accuracy': 0.75}}, step=2)\nraise RuntimeError({OOM!r})")
    panel = notebook.run(f"%%watcher recover\n{TRAIN}").value
    for face in (panel.text(), panel.html()):
        assert "logged loss, accuracy" in " ".join(face.split()) and "--metric" in face
    guarded = notebook.run(f"%%watcher recover --metric loss:minimize:0.5:0.1\n{TRAIN}").value
    assert "is guarded" not in guarded.text()


def test_memory_that_is_still_held_is_said_with_the_plan(notebook):
    notebook.run("%watcher keep-frames on")
    notebook.run(INIT)
    notebook.run(f"raise RuntimeError({OOM!r})")
    assert "%watcher free" in notebook.run(f"%%watcher recover\n{TRAIN}").value.text()


def test_the_newest_failure_of_the_store_serves_in_a_new_session(failed):
    failed.run("%reload_ext watcherml")
    panel = failed.run(f"%%watcher recover\n{TRAIN}").value
    assert panel.plan.source.run_id == failed["run"].run_id


def test_without_a_failure_there_is_nothing_to_recover(notebook):
    assert "ran out of memory" in refusal(notebook.run(f"%%watcher recover\n{TRAIN}"))
    notebook.run(INIT)
    assert "no run" in refusal(notebook.run(f"%%watcher recover --run nobody\n{TRAIN}"))


def test_help_of_recover_lists_the_flags_of_contract_and_policy(notebook):
    text = notebook.run("%watcher recover --help").value.text()
    for flag in ("--file", "--function", "--run", "--metric", "--allow-semantic-changes", "--max-trials", "--yes"):
        assert flag in text


REFUSED = {
    "an unbalanced quote": ("'oops", TRAIN, "balanced quotes"),
    "an unknown flag": ("--wat", TRAIN, "--wat"),
    "a cell magic in the body": ("", "%matplotlib inline\n" + TRAIN, "line 1"),
    "broken Python": ("", "def train(config, max_steps=None:\n    pass", "line 1"),
    "no function": ("", "x = 1", "config and max_steps"),
    "a function without max_steps": ("", "def train(config):\n    return {}", "one of train"),
    "two functions that fit": ("", TRAIN + TRAIN.replace("def train", "def other"), "--function"),
    "a function that is not there": ("--function nobody", TRAIN, "nobody"),
    "a file name with a folder": ("--file ../evil.py", TRAIN, "--file"),
    "a file name of the standard library": ("--file json.py", TRAIN, "--file"),
    "a folder that is not there": ("--project-root nowhere", TRAIN, "nowhere"),
    "a name that is no variable": ("--name 1x", TRAIN, "--name"),
    "contradicting permissions": ("--automatic-only --allow-approval-required", TRAIN, "--automatic-only"),
    "a module that does not import": ("", "raise OSError('boom')\n" + TRAIN, "boom"),
    "numbers that do not hold together": ("--max-trials 2", TRAIN, "max_trials"),
}


def test_a_recovery_is_refused_with_the_reason(failed):
    answers = {
        case: refusal(failed.run(f"%%watcher recover {line}\n{source}")) for case, (line, source, _) in REFUSED.items()
    }
    unclear = {case: answers[case] for case, (_, _, named) in REFUSED.items() if named not in answers[case]}
    assert unclear == {}
    assert "recovery" not in failed.shell.user_ns
    assert failed.store.audit.campaigns() == []


def test_a_file_of_the_person_is_not_overwritten(failed, tmp_path):
    (tmp_path / "mine.py").write_text("# mine\n")
    assert "--file" in refusal(failed.run(f"%%watcher recover --file mine.py\n{TRAIN}"))
    assert (tmp_path / "mine.py").read_text() == "# mine\n"


def test_a_variable_of_the_person_is_not_overwritten(failed):
    failed["recovery"] = [1, 2, 3]
    assert "--name" in refusal(failed.run(f"%%watcher recover\n{TRAIN}"))
    assert failed["recovery"] == [1, 2, 3]


def test_the_source_may_not_need_names_of_the_notebook(failed):
    failed.run("import math\nscale = 3\ndef helper():\n    return 1")
    found = refusal(
        failed.run(
            "%%watcher recover\ndef train(config, max_steps=None):\n    return {'loss': math.pi * scale * helper()}"
        )
    )
    for words in ("scale (line 2)", "line 2, makes the value scale (`scale = 3`)", "helper, math can be copied"):
        assert words in found


# -- the body as text ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("x = 1\ndef f():\n    return x + len([])", {}),
        ("def f():\n    return torch.nn", {"torch": 2}),
        ("import torch as t\nfrom a.b import c\ndef f():\n    return t, c, a", {"a": 4}),
        ("def f():\n    global made\n    made = 1\ndef g():\n    return made", {}),
        ("class A:\n    y = z\n    def m(self):\n        return y", {"z": 2, "y": 4}),
        ("def f():\n    return [i for i in range(3)], (lambda a: a + b)(1)", {"b": 2}),
        ("def f(x: Later) -> Later:\n    pass", {"Later": 1}),
        ("from __future__ import annotations\ndef f(x: int):\n    return __name__, __file__", {}),
        ("def f():\n    def g():\n        return inner\n    inner = 1\n    return g", {}),
        ("@decorate\ndef f():\n    display(get_ipython())", {"decorate": 1, "display": 3, "get_ipython": 3}),
        ("try:\n    import a\nexcept ImportError:\n    a = None\nwith open('x') as h:\n    print(h, a)", {}),
        ("from torch import *\ndef f():\n    return nn", {}),
        ("for i in range(3):\n    pass\nprint(i, j)", {"j": 3}),
        ("def f():\n    if (n := 3):\n        return n\ndef g():\n    return n", {"n": 5}),
    ],
)
def test_names_that_a_module_lacks(source, missing):
    assert body.undefined_names(source) == missing


def test_a_body_with_a_null_byte_is_refused():
    with pytest.raises(InvalidEntrypoint):
        body.parse("x = 1\0")


def test_every_flag_of_recover_is_documented():
    for action in recover.parser()._actions:
        assert action.help, action.option_strings
