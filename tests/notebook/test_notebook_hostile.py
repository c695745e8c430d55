"""What a notebook can do to us: odd cells, odd values, files and folders that change while something waits."""

import os
import shutil
from dataclasses import replace

import pytest
from notebook_shell import CONFIG, INIT, OOM, SHORT, TRAIN

import watcherml
from watcherml.campaign import supervisor
from watcherml.errors import CampaignError, InvalidEntrypoint, StoreError, UsageError
from watcherml.notebook import body
from watcherml.notebook.bindings import Ran, bindings
from watcherml.notebook.cells import CellHistory
from watcherml.notebook.names import complete
from watcherml.notebook.session import Session

FAIL = f"raise RuntimeError({OOM!r})"
HELPERS = "def limit():\n    return 16"
LACKING = f"""
def train(config, max_steps=None):
    if config["batch_size"] > limit():
        raise RuntimeError({OOM!r})
    return {{"steps_completed": config["training_steps"] if max_steps is None else max_steps}}
"""


def refusal(outcome):
    assert type(outcome.error).__name__ == "UsageError", outcome.error
    return str(outcome.error)


# -- the text of cells -------------------------------------------------------------------------------------------------

# name: (body, what it leaves in `left`)
FUTURES = {
    "in a text": ('left = """\nfrom __future__ import annotations\n"""', "\nfrom __future__ import annotations\n"),
    "in a docstring": ('"""\nfrom __future__ import annotations\n"""\nleft = 1', 1),
    "in parentheses": ("from __future__ import (annotations,\n    division)\nleft = 2", 2),
    "on two lines": ("from __future__ import annotations, \\\n    division\nleft = 3", 3),
    "with more behind it": ("from __future__ import annotations; left = 4", 4),
    "twice, behind a docstring": (
        "'doc'; from __future__ import division\n\n# more\nfrom __future__ import annotations\nleft = 5", 5),
    "above a magic": ("from __future__ import annotations\n!echo it\\'s\nleft = 6", 6),
}  # fmt: skip


def test_the_call_that_begins_a_run_stands_behind_future_statements_and_in_no_text(notebook):
    notebook.run(f"config = {CONFIG!r}")
    for case, (source, left) in FUTURES.items():
        notebook.run("run = left = None")
        outcome = notebook.run(f"%%watcher run\n{source}")
        assert outcome.error is None, case
        assert (notebook["left"], notebook["run"].status) == (left, "success"), case


@pytest.mark.parametrize("mark", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_a_character_that_ends_no_line_of_python_cuts_nothing_off_what_is_copied(mark):
    definition = "def helper(x):\n    y = x * 2\n    return y"
    cells = [Ran(1, f"# one{mark}line\ntext = '{mark}'\n{definition}\n")]
    source = f'"""A{mark}B\nC{mark}"""\nfrom __future__ import annotations\nimport os\nX = helper(1)\n'
    completed = complete(source, cells, {"helper"})
    assert completed.code == f"# From cell [1].\n{definition}"
    assert completed.source == source.replace("import os", f"\n\n{completed.code}\n\n\nimport os")


# More than the parser takes, or than a recursion over what it returns does: either may happen, by version.
DEEP = ["x = " + "-" * 20_000 + "1", "x = " + "+".join(["1"] * 3_000), "x = a" + ".b()" * 3_000]


@pytest.mark.parametrize("text", DEEP, ids=["signs", "a sum", "calls"])
def test_a_cell_that_is_nested_too_deeply_stands_in_the_way_of_no_recovery(text):
    bindings(text)
    try:
        body.undefined_names(text)
    except InvalidEntrypoint as error:
        assert "body" in str(error)


# -- the file of a body ------------------------------------------------------------------------------------------------


def test_what_is_no_plain_file_of_ours_is_neither_replaced_nor_followed(failed, tmp_path):
    (tmp_path / "ours.py").write_text(body.marked(TRAIN))
    (tmp_path / "link.py").symlink_to("ours.py")
    (tmp_path / "dangling.py").symlink_to("nothing.py")
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "folder.py").mkdir()
    os.mkfifo(tmp_path / "pipe.py")
    for name, kind in {"link": "a link", "dangling": "a link", "loop": "a link", "folder": "a folder",
                       "pipe": "no plain file"}.items():  # fmt: skip
        for magic in (f"entrypoint {name}.py", f"recover --file {name}.py"):
            assert kind in refusal(failed.run(f"%%watcher {magic}\n{TRAIN.replace('0.4', '0.5')}"))
    assert [path.name for path in sorted(tmp_path.glob("*.py")) if path.is_symlink()] == [
        "dangling.py", "link.py", "loop.py",
    ]  # fmt: skip
    assert (tmp_path / "ours.py").read_text() == body.marked(TRAIN) and not (tmp_path / "nothing.py").exists()


@pytest.mark.parametrize("name", ["__init__", "__main__", "class", "conftest", "sitecustomize", "psutil", "IPython"])
def test_a_file_that_would_hide_another_module_is_not_written(name, tmp_path):
    with pytest.raises(UsageError, match="no other module has"):
        body.file_path(f"{name}.py", str(tmp_path), ".")


def test_a_module_of_the_projects_own_folder_may_be_written(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "wml_own_module.py").write_text("")
    assert body.file_path("wml_own_module.py", str(tmp_path), ".").parent == tmp_path


@pytest.mark.parametrize("before", [None, "x = 1"], ids=["no file before", "ours before"])
def test_what_was_written_meanwhile_is_not_taken_back_with_a_body_that_fails(tmp_path, before):
    path = tmp_path / "my.py"
    if before is not None:
        path.write_text(body.marked(before))
    with pytest.raises(OSError, match="check"), body.written(path, "x = 2"):
        path.write_text("# another notebook's, or the person's\n")
        raise OSError("check")
    assert path.read_text() == "# another notebook's, or the person's\n"


# -- values of the person ----------------------------------------------------------------------------------------------

ODD = """
from collections.abc import Mapping
class Broken(Mapping):
    def __iter__(self): raise OSError("iter")
    def __len__(self): raise OSError("len")
    def __getitem__(self, key): raise OSError("item")
class Hidden:
    @property
    def __class__(self): raise OSError("class")
    def __getattr__(self, name): raise OSError(name)
    def __eq__(self, other): raise OSError("eq")
    def __repr__(self): raise OSError("repr")
class Odd(RuntimeError):
    __module__ = 5
"""


def test_a_value_that_raises_when_it_is_read_costs_no_cell(notebook):
    notebook.run(ODD)
    for value in ("Broken()", "Hidden()"):
        notebook.run(f"config, run, ran = {value}, None, False")
        outcome = notebook.run("%%watcher run\nran = True")
        assert outcome.error is None and notebook["ran"] and notebook["run"].status == "success", value
    notebook.run("mine = Hidden()")
    assert "holds your own Hidden" in refusal(notebook.run("%%watcher run --name mine\n1"))


def test_an_exception_whose_class_names_no_module_is_captured_and_its_memory_comes_back(notebook):
    notebook.run(f"{ODD}\n{INIT}")
    outcome = notebook.run(f"raise Odd({OOM!r})")
    assert type(outcome.error).__name__ == "Odd" and "Memory given back" in outcome.text
    assert Session.of(notebook.shell).problems == [] and notebook["run"].status == "failed"


def test_code_that_calls_the_magic_gets_its_own_exception_of_whatever_kind(notebook):
    notebook.run("import watcherml.errors\nconfig = {}")
    for error in ('OSError(2, "x")', 'watcherml.errors.UsageError("x")'):
        notebook["body"] = f"own = {error}\nraise own"
        outcome = notebook.run("get_ipython().run_cell_magic('watcher', 'run', body)")
        assert outcome.error is notebook["own"]


# -- interruptions and reloads -----------------------------------------------------------------------------------------


def test_a_run_ends_with_its_cell_though_the_cell_reloads_the_extension(notebook):
    notebook.run("config = {}")
    notebook.run("%%watcher run\n%reload_ext watcherml")
    assert notebook["run"].status == "success"
    outcome = notebook.run("%%watcher run\n%reload_ext watcherml\n1 / 0")
    assert notebook["run"].status == "failed" and outcome.html.count('class="wml-failure"') == 1


def test_a_run_that_an_unloaded_session_left_open_is_not_ended_by_a_later_cell(notebook):
    notebook.run("%%watcher run\n%unload_ext watcherml")
    notebook.run("%load_ext watcherml")
    assert notebook["run"].status == "running"


def test_ctrl_c_in_the_hook_after_a_cell_is_said_and_later_panels_are_shown(notebook, monkeypatch):
    notebook.run(INIT)
    end = CellHistory.end

    def interrupted(*arguments):
        monkeypatch.setattr(CellHistory, "end", end)
        raise KeyboardInterrupt

    monkeypatch.setattr(CellHistory, "end", interrupted)
    told = notebook.run("x = 1")
    assert told.error is None and "Ctrl-C came while" in told.text
    assert Session.of(notebook.shell).cells.depth == 0
    assert notebook.run(FAIL).html.count('class="wml-failure"') == 1


# -- folders and stores that change ------------------------------------------------------------------------------------


def test_a_failure_that_is_not_on_record_is_not_answered_with_a_plan_for_an_older_one(failed):
    failed.run(FAIL)  # no run is open any more
    assert "is not on record" in refusal(failed.run(f"%%watcher recover\n{TRAIN}"))
    older = failed["run"].run_id
    assert failed.run(f"%%watcher recover --run {older}\n{TRAIN}").value.plan.source.run_id == older


@pytest.mark.filterwarnings("ignore:WatcherML could not")
def test_training_goes_on_where_the_working_directory_is_gone(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.delenv("WATCHERML_DIR", raising=False)
    monkeypatch.chdir(folder)
    folder.rmdir()
    run = watcherml.init("demo", CONFIG)
    run.log_metric("loss", 0.5, 1)
    run.finish()
    with pytest.raises(StoreError, match="the working directory was deleted"):
        watcherml.Storage("named")
    monkeypatch.chdir(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_nobody_has_is_a_folder_like_any_other(notebook, tmp_path, monkeypatch):
    unknown = "~nobody-of-this-name/x"
    for line in (f"%watcher download --out {unknown}", f"%%watcher entrypoint my.py --project-root {unknown}\n{TRAIN}"):
        notebook.run(INIT)
        assert "~nobody-of-this-name" in refusal(notebook.run(line))
    monkeypatch.setenv("WATCHERML_DIR", unknown)
    assert watcherml.Storage().path == tmp_path / unknown


def test_what_an_offer_and_a_plan_go_on_with_follows_neither_cd_nor_a_late_click(failed, tmp_path, monkeypatch):
    failed.run(HELPERS)
    offer = failed.run(f"%%watcher recover {SHORT}\n{LACKING}").value
    (tmp_path / "elsewhere").mkdir()
    failed.run("%cd elsewhere\nrecovery = 'mine'")
    with pytest.raises(UsageError, match="holds your own str"):
        offer.accept()
    assert failed["recovery"] == "mine" and not (tmp_path / body.DEFAULT_FILE).exists()
    del failed.shell.user_ns["recovery"]
    panel = offer.accept()
    assert (tmp_path / body.DEFAULT_FILE).exists() and failed["recovery"] is panel
    assert panel._options["project_root"] == str(tmp_path)
    # Buttons of the plan before, whose click arrives when another plan has taken its place.
    view = panel.view()
    start = next(one for one in view.children if "wml-start" in one._dom_classes)
    late = panel._shown._rows[0]
    before, busy, put = panel.plan.digest, [], panel._replace
    # Between the two plans, too, nothing can be decided or started.
    monkeypatch.setattr(panel, "_replace", lambda *plans: (busy.append(panel.busy), put(*plans))[1])
    panel.change(max_trials=7)
    assert busy == [True] and not panel.busy
    assert panel.plan.digest != before and late.proposal.proposal_id in panel.states()
    late._buttons[0].value = True
    assert panel._rejections == {} and "plan before" in panel.message[0]
    start.click()
    worker = panel._shown.working
    if worker is not None:
        worker.join(60)
    assert panel.progress is None and "plan before" in panel.message[0]
    # A store that is gone must not end the cell that shows the panel.
    shutil.rmtree(tmp_path / ".watcherml")
    assert "cannot be shown now" in panel._repr_mimebundle_()["text/plain"]


def test_ctrl_c_while_a_campaign_comes_up_starts_no_second_one_and_keeps_no_file_for_ever(failed, monkeypatch):
    panel = failed.run(f"%%watcher recover {SHORT}\n{TRAIN}").value

    def interrupted(storage, campaign_id):
        raise KeyboardInterrupt

    monkeypatch.setattr(supervisor, "spawn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        panel.start()
    assert panel.campaign.lifecycle == "prepared" and panel.start() is panel.progress
    assert [one["campaign_id"] for one in failed.store.audit.campaigns()] == [panel.campaign.campaign_id]
    another = f"%%watcher recover --name another {SHORT}\n{TRAIN.replace('0.4', '0.5')}"
    assert "is running the code" in refusal(failed.run(another))
    later = panel.preparation.storage.clock() + 3_600
    monkeypatch.setattr(panel.preparation.storage, "clock", lambda: later)
    assert failed.run(another).error is None


@pytest.mark.long
def test_a_panel_whose_campaign_another_kernel_has_taken_up_follows_and_stops_it(failed, monkeypatch):
    slow = TRAIN.replace('config.get("seconds", 0)', "30")
    panel = failed.run(f"%%watcher recover {SHORT}\n{slow}").value
    progress = panel.start()
    try:
        monkeypatch.setattr(progress, "_look", replace(progress._look, lifecycle="interrupted"))
        with pytest.raises(CampaignError, match="cannot be resumed"):
            progress.resume()
        assert progress._look.lifecycle == "running"
        monkeypatch.setattr(progress, "_look", replace(progress._look, lifecycle="interrupted"))
    finally:
        told = progress.stop().text()
    assert "A stop was asked for" in told and progress.wait(60).verdict.status == "stopped"
