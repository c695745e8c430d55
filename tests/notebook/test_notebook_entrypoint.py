"""``%%watcher entrypoint`` and what both cell magics do about names that a body lacks: offer, copy, refuse."""

import sys

from notebook_shell import OOM, SHORT, TRAIN

from watcherml.notebook import body
from watcherml.notebook.panels.offer import OfferPanel
from watcherml.notebook.panels.plan import PlanPanel

HELPERS = "import math\ndef limit():\n    return math.floor(16.5)"
LACKING = f"""
def train(config, max_steps=None):
    if config["batch_size"] > limit():
        raise RuntimeError({OOM!r})
    return {{"steps_completed": config["training_steps"] if max_steps is None else max_steps}}
"""


def refusal(outcome):
    assert type(outcome.error).__name__ == "UsageError", outcome.error
    return str(outcome.error)


# -- %%watcher entrypoint ----------------------------------------------------------------------------------------------


def test_a_cell_becomes_a_module_that_recover_uses(failed, tmp_path):
    page = failed.run(f"%%watcher entrypoint my_training.py\n{TRAIN}").value
    for face in (page.text(), page.html()):
        assert "my_training:train" in face and "%watcher recover --entrypoint my_training:train" in face
    assert "takes config, max_steps" in " ".join(page.text().split())
    assert "my_training" not in sys.modules and "train" not in failed.shell.user_ns
    assert (tmp_path / "my_training.py").read_text() == body.marked(TRAIN)
    panel = failed.run("%watcher recover --entrypoint my_training:train").value
    assert panel.plan.contract.entrypoint.target == "my_training:train"
    # The same again, and a changed one, are taken: both are the cell's own.
    assert failed.run(f"%%watcher entrypoint my_training.py\n{TRAIN}").error is None
    assert failed.run(f"%%watcher entrypoint my_training.py\n{TRAIN.replace('0.4', '0.5')}").error is None
    assert "0.5" in (tmp_path / "my_training.py").read_text()


# name: (flags, body, words of the refusal)
REFUSED = {
    "no file": ("", TRAIN, "FILE"),
    "a path": ("../my.py", TRAIN, "FILE"),
    "a name that is no module": ("my-training.py", TRAIN, "FILE"),
    "a module of the standard library": ("json.py", TRAIN, "no other module"),
    "a folder that is not there": ("my.py --project-root nowhere", TRAIN, "nowhere"),
    "no body": ("my.py", "\n", "a cell body"),
    "no function": ("my.py", "x = 1", "config and max_steps"),
    "a function that is not there": ("my.py --function nobody", TRAIN, "nobody"),
    "a magic in the body": ("my.py", "%pwd\n" + TRAIN, "line 1"),
    "a value of the notebook": ("my.py", TRAIN + "\nx = scale", "makes the value scale"),
    "a module that does not import": ("my.py", "raise OSError('boom')\n" + TRAIN, "boom"),
    "a python that is not there": ("my.py --python-executable ./nothing", TRAIN, "nothing"),
}


def test_what_is_no_module_is_refused_and_leaves_no_file(failed, tmp_path):
    failed.run("scale = 3")
    before = sorted(tmp_path.iterdir())
    answers = {
        case: refusal(failed.run(f"%%watcher entrypoint {flags}\n{source}"))
        for case, (flags, source, _) in REFUSED.items()
    }
    assert {case: text for case, text in answers.items() if REFUSED[case][2] not in text} == {}
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_that_a_person_wrote_or_changed_stays(failed, tmp_path):
    path, changed = tmp_path / "my.py", body.marked(TRAIN).replace("0.4", "0.7")
    for magic in ("entrypoint my.py", "recover --file my.py"):
        for text, words in (("# mine\n", "was not written from a notebook cell"), (changed, "was changed after")):
            path.write_text(text)
            assert words in refusal(failed.run(f"%%watcher {magic}\n{TRAIN}"))
            assert path.read_text() == text


def test_a_module_that_does_not_import_leaves_the_file_as_it_was(failed, tmp_path):
    failed.run(f"%%watcher entrypoint my.py\n{TRAIN}")
    before = (tmp_path / "my.py").read_bytes()
    for magic in ("entrypoint my.py", "recover --file my.py"):
        assert "boom" in refusal(failed.run(f"%%watcher {magic}\nraise OSError('boom')\n{TRAIN}"))
        assert (tmp_path / "my.py").read_bytes() == before


def test_a_module_that_the_kernel_has_imported_is_said_to_be_kept(failed, monkeypatch):
    monkeypatch.setitem(sys.modules, "my_kept_module", object())
    assert "keeps that" in failed.run(f"%%watcher entrypoint my_kept_module.py\n{TRAIN}").value.text()


# -- names that the body lacks -----------------------------------------------------------------------------------------


def test_recover_offers_what_it_lacks_and_writes_nothing_until_it_is_accepted(failed, tmp_path):
    failed.run(HELPERS)
    offer = failed.run(f"%%watcher recover {SHORT}\n{LACKING}").value
    assert isinstance(offer, OfferPanel) and failed["offer"] is offer and "recovery" not in failed.shell.user_ns
    for face in (offer.text(), offer.html()):
        for words in ("limit", "import math", "def limit():", "offer.accept()", "--copy-names", "Nothing is written"):
            assert words in face
    assert not (tmp_path / body.DEFAULT_FILE).exists()
    panel = failed.run("offer.accept()").value
    assert isinstance(panel, PlanPanel) and failed["recovery"] is panel and offer.accept() is panel
    written = (tmp_path / body.DEFAULT_FILE).read_text()
    assert offer.code in written and written.index("import math") < written.index("def train")
    assert offer.text() == panel.text() and "accepted" in repr(offer)


def test_the_flag_copies_without_asking(failed, tmp_path):
    failed.run(HELPERS)
    panel = failed.run(f"%%watcher recover --copy-names\n{LACKING}").value
    assert isinstance(panel, PlanPanel) and "offer" not in failed.shell.user_ns
    page = failed.run(f"%%watcher entrypoint my.py --copy-names\n{LACKING}").value
    assert "my:train" in page.text() and "def limit():" in (tmp_path / "my.py").read_text()


def test_the_button_of_an_offer_does_what_the_call_does(failed, tmp_path):
    failed.run(HELPERS)
    offer = failed.run(f"%%watcher entrypoint my.py\n{LACKING}").value
    box = offer.view()
    button = next(child for child in box.children if "wml-accept" in child._dom_classes)
    button.click()
    button.click()
    worker = offer._worker
    if worker is not None:
        worker.join(60)
    assert (tmp_path / "my.py").exists() and "my:train" in offer.text()
    assert "my:train" in box.children[0].value


def test_an_offer_that_cannot_be_kept_says_why_and_stays(failed, tmp_path):
    failed.run(HELPERS)
    offer = failed.run(f"%%watcher entrypoint my.py\n{LACKING}").value
    (tmp_path / "my.py").write_text("# mine\n")
    button = next(child for child in offer.view().children if "wml-accept" in child._dom_classes)
    button.click()
    if offer._worker is not None:
        offer._worker.join(60)
    assert "was not written from a notebook cell" in offer._parts["message"].value and not button.disabled
    (tmp_path / "my.py").unlink()
    assert "my:train" in offer.accept().text()


def test_a_variable_of_the_person_is_no_place_for_an_offer(failed):
    failed.run(HELPERS)
    failed["offer"] = "mine"
    offer = failed.run(f"%%watcher recover\n{LACKING}").value
    assert failed["offer"] == "mine" and failed["offer_2"] is offer and "offer_2.accept()" in offer.text()
    again = failed.run(f"%%watcher recover\n{LACKING}").value
    assert failed["offer_2"] is again


def test_defs_of_the_very_cell_that_ran_out_of_memory_are_offered(notebook):
    notebook.run(
        "%%watcher run\nconfig = {}\nimport math\ndef limit():\n    return math.floor(16.5)\n"
        f"def later():\n    raise RuntimeError({OOM!r})\nlater()\ndef never(): pass"
    )
    offer = notebook.run(f"%%watcher recover --minimum-progress-steps 6\n{LACKING}").value
    assert "def limit():" in offer.code
    found = refusal(notebook.run(f"%%watcher recover --minimum-progress-steps 6\n{LACKING.replace('limit', 'never')}"))
    assert "ended before it was executed" in found


def test_a_failing_line_is_counted_in_cells_with_empty_lines_above_and_magics(notebook):
    notebook.run("\n\ndef one(): return 1\n%time x = 1\ndef two(): return 2\n1 / 0\ndef three(): return 3")
    from watcherml.notebook.bindings import found
    from watcherml.notebook.session import Session

    cells = Session.of(notebook.shell).cells.sources()
    assert [found(name, cells).kind for name in ("one", "two", "three")] == ["function", "function", "unexecuted"]
    notebook.run("import asyncio\ndef four(): return 4\nawait asyncio.sleep(0)\n1 / 0\ndef five(): return 5")
    cells = Session.of(notebook.shell).cells.sources()
    assert [found(name, cells).kind for name in ("four", "five")] == ["function", "unexecuted"]


def test_names_of_cells_from_before_the_extension_was_loaded_are_copied(plain_shell, tmp_path):
    plain_shell.run("import math\ndef limit():\n    return math.floor(1)")
    plain_shell.run("def unused():\n    return 'token=ghp_0123456789abcdefghijklmnopqrstuvwxyzAB'")
    plain_shell.run("\n\ndef scale():\n    return 16.5\n%load_ext watcherml")
    plain_shell.run("def limit():\n    return math.floor(scale())\nlimit()")
    assert plain_shell.run(f"%%watcher entrypoint my.py --copy-names\n{LACKING}").error is None
    written = (tmp_path / "my.py").read_text()
    assert "# From cell [3].\ndef scale" in written and "# From cell [4].\ndef limit" in written
    assert "import math" in written and "floor(1)" not in written and "ghp_" not in written
    secret = plain_shell.run(f"%%watcher entrypoint my2.py --copy-names\nx = unused()\n{LACKING}")
    assert "looks like a secret" in refusal(secret)
    # On record are the cell that loaded the extension and those since.
    assert "5 cells recorded" in plain_shell.run("%watcher status").value.text()
