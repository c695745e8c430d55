"""Magics that write files and that show or mark what is on record: export, download, plan, resolve, verify, help."""

import re
import sys
import zipfile

from notebook_shell import OOM, SHORT, TRAIN

from watcherml import Storage
from watcherml.notebook import leaving, magics
from watcherml.notebook.panels.plan import PlanPanel


def refusal(outcome):
    assert type(outcome.error).__name__ == "UsageError", outcome.error
    return str(outcome.error)


# -- files -----------------------------------------------------------------------------------------------------------


def test_export_writes_a_run_and_shows_a_link(failed, tmp_path):
    run_id = failed["run"].run_id
    page = failed.run(f"%watcher export {run_id}").value
    name = f"watcher-{run_id}.zip"
    with zipfile.ZipFile(tmp_path / name) as archive:
        assert "manifest.json" in archive.namelist()
    size = (tmp_path / name).stat().st_size
    assert f'href="{name}" download="{name}"' in page.html() and f"{size:,} bytes" in page.html()
    assert name in page.text() and "look before you pass it on" in " ".join(page.text().split())
    assert "--force" in refusal(failed.run(f"%watcher export {run_id}"))
    assert failed.run(f"%watcher export {run_id} --force").error is None
    (tmp_path / "a folder").mkdir()
    inside = failed.run(f"%watcher export {run_id} --out 'a folder'").value
    assert f'href="a%20folder/{name}"' in inside.html()
    assert "no run" in refusal(failed.run("%watcher export nobody --force"))
    assert "RUN_ID" in refusal(failed.run("%watcher export"))


def test_download_packs_the_store_with_the_points_of_an_open_run(notebook, tmp_path):
    notebook.run("import watcherml\nrun = watcherml.init('demo')\nrun.log_metric('loss', 0.5, 1)")
    page = notebook.run("%watcher download").value
    path = tmp_path / leaving.PACK_NAME
    assert f'href="{path.name}" download="{path.name}"' in page.html()
    assert f"{path.stat().st_size:,} bytes" in page.html() and "--data-dir" in page.text()
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "home")
    (found,) = (tmp_path / "home").rglob("watcherml.db")
    home = Storage(found.parent)
    assert [point["value"] for point in home.get_metrics(notebook["run"].run_id)] == [0.5]
    # Its own earlier pack may be replaced, whatever else is there may not.
    assert notebook.run("%watcher download").error is None
    path.write_bytes(b"a file of the person")
    assert "--force" in refusal(notebook.run("%watcher download"))
    assert path.read_bytes() == b"a file of the person"
    other = notebook.run(f"%watcher download --out {tmp_path.parent / 'elsewhere.zip'}").value
    assert "No link" in other.html() and "href" not in other.html()


def test_download_without_a_store_makes_none(notebook, tmp_path):
    assert "no WatcherML store" in refusal(notebook.run("%watcher download"))
    assert not (tmp_path / ".watcherml").exists()


def test_on_colab_its_own_module_sends_the_file(failed, tmp_path, monkeypatch):
    package = tmp_path / "site" / "google" / "colab"
    package.mkdir(parents=True)
    (package / "files.py").write_text("sent = []\ndownload = sent.append\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    for name in [name for name in sys.modules if name.partition(".")[0] == "google"]:
        monkeypatch.delitem(sys.modules, name)
    failed.run("%watcher download")
    from google.colab import files

    assert files.sent == [str(tmp_path / leaving.PACK_NAME)]
    for name in [name for name in sys.modules if name.partition(".")[0] == "google"]:
        del sys.modules[name]  # for good: monkeypatch would put the stand-in back


# -- on record -------------------------------------------------------------------------------------------------------


def test_a_plan_is_found_again_by_its_run_its_digest_and_its_campaign(failed):
    assert "no plan" in refusal(failed.run(f"%watcher plan {failed['run'].run_id}"))
    made = failed.run(f"%%watcher recover {SHORT}\n{TRAIN}").value.plan
    digest = made.digest.rpartition(":")[2]
    failed.run("del recovery")
    for wanted in (failed["run"].run_id, made.digest, digest[:12]):
        panel = failed.run(f"%watcher plan {wanted} --name again").value
        assert isinstance(panel, PlanPanel) and failed["again"] is panel and panel.plan.digest == made.digest
    assert "again.start()" in panel.text()
    for wanted in ("nobody", digest[:6], "g" * 12):
        assert "no plan" in refusal(failed.run(f"%watcher plan {wanted}"))
    failed["taken"] = 1
    assert "--name" in refusal(failed.run(f"%watcher plan {digest} --name taken"))
    # Started from the panel that was found again, it is a campaign's plan and shown as that.
    failed.run("again.start()\nagain.stop()\nresult = again.wait()")
    assert failed["result"] is not None
    campaign_id = failed["again"].campaign.campaign_id
    for wanted in (campaign_id, digest):
        page = failed.run(f"%watcher plan {wanted}").value
        assert not isinstance(page, PlanPanel) and f"%watcher recovery {campaign_id}" in page.text()
    told = failed.run(f"%watcher verify {campaign_id}").value
    assert "on record here" in told.text() and "on record here" in told.html()
    assert campaign_id in failed.run("%watcher recoveries --status " + failed["result"].status).value.text()
    assert "--status" in refusal(failed.run("%watcher recoveries --verified --status stopped"))


def test_verify_of_what_is_not_there_is_refused(failed):
    assert refusal(failed.run("%watcher verify nothing-here.json"))


def test_resolve_marks_a_failure_and_opens_it_again(failed):
    run_id = failed["run"].run_id
    page = failed.run(f"%watcher resolve {run_id} --note 'smaller batch' --by ann").value
    assert "as resolved" in page.text() and "by ann: smaller batch" in page.html()
    assert run_id not in failed.run("%watcher failures --unresolved").value.text()
    assert "again" in failed.run(f"%watcher resolve {run_id} --reopen").value.text()
    assert "neither --note nor --by" in refusal(failed.run(f"%watcher resolve {run_id} --reopen --by ann"))


# -- help and odd places -----------------------------------------------------------------------------------------------


def test_every_word_has_its_help_in_three_spellings(notebook):
    ask, shell = notebook.shell.run_line_magic, notebook.shell
    for word in dict.fromkeys([*magics.COMMANDS, *magics.CELL_COMMANDS]):
        text = ask("watcher", f"help {word}").text()
        assert word in text and "usage" in text
        if word in magics.COMMANDS:
            assert ask("watcher", f"{word} --help").text() == text
        if word in magics.CELL_COMMANDS:
            assert shell.run_cell_magic("watcher", f"{word} --help", "x = 1").text() == text
            assert "x" not in shell.user_ns


def test_help_lists_all_words_and_knows_no_others(notebook):
    text = notebook.run("%watcher").value.text()
    for word in magics.COMMANDS:
        assert re.search(rf"^%watcher {word}\b", text, re.MULTILINE)
    for word in magics.CELL_COMMANDS:
        assert re.search(rf"^%%watcher {word}\b", text, re.MULTILINE)
    assert notebook.run("%%watcher\nx = 1").value.text() == text
    assert notebook.run("%watcher --help").value.text() == text
    assert "nonsense" in refusal(notebook.run("%watcher help nonsense"))


def test_a_word_of_the_other_kind_is_answered_with_its_spelling(notebook):
    assert "%%watcher run is the first line of a cell" in refusal(notebook.run("%watcher run"))
    assert "%watcher status is a line of its own" in refusal(notebook.run("%%watcher status\nx = 1"))
    assert "one of run, entrypoint, recover" in refusal(notebook.run("%%watcher nonsense\nx = 1"))


def test_magics_work_in_odd_places(notebook):
    notebook.run("if True:\n    page = %watcher status")
    assert "Store" in notebook["page"].text()
    notebook.run("pages = [get_ipython().run_line_magic('watcher', word) for word in ('runs', 'failures')]")
    assert len(notebook["pages"]) == 2
    notebook.run("def look():\n    %watcher project inner project\nlook()")
    assert "inner project" in notebook.run("%watcher project").value.text()
    notebook.run("name = 'outer'\n%watcher project $name")
    assert "outer" in notebook.run("%watcher  project").value.text()
    assert "Store" in notebook.run("%watcher status;").value.text()


def test_the_lists_take_the_flags_of_the_command_line(failed):
    from watcherml.cli.main import command_parser

    for word in ("runs", "failures", "recoveries", "export", "resolve", "verify"):
        mine = {flag for action in magics.line_parser(word)._actions for flag in action.option_strings}
        theirs = {flag for action in command_parser(word)._actions for flag in action.option_strings}
        assert mine == theirs - {
            "--help",
            "-h",
            "--format",
            "--output",
            "--data-dir",
            "--no-color",
            "--quiet",
            "--version",
        }, word
    run_id = failed["run"].run_id
    assert run_id in failed.run("%watcher runs --status failed --project demo").value.text()
    assert run_id not in failed.run("%watcher runs --status success").value.text()
    for line in ("runs --status nonsense", "runs --limit 0", "failures --limit x"):
        assert refusal(failed.run(f"%watcher {line}"))
    assert OOM[:18] in failed.run(f"%watcher inspect {run_id}").value.text()
