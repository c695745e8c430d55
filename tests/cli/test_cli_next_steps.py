"""Where a campaign has no verdict of this store, every command says the same of it, and what it says next leads on."""

import json
import sys

import pytest
import stored
from builders import FAILED_CONFIG, good_trials, trial

import watcherml
from watcherml.campaign import resume
from watcherml.campaign.ledger import Ledger, Settings
from watcherml.cli.main import main
from watcherml.contract.permissions import InterventionPermissions
from watcherml.errors import InvalidValue, NotFound
from watcherml.platform import interpreter
from watcherml.report.text_archive import text_import
from watcherml.store.storage import Storage
from watcherml.trials.check_entrypoint import _run_child


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store with a campaign that may still come up, one that never did, a verified one and one that is not."""
    storage = Storage(tmp_path_factory.mktemp("next-steps") / ".watcherml")
    config = {**FAILED_CONFIG, "sequence_length": 128}
    plan = stored.recorded_plan(storage, config, permissions=InterventionPermissions())
    for name, trials in (("good", good_trials(plan)), ("passed", (trial(plan, "control", 1),))):
        stored.record(storage, name, plan, stored.rename(trials, name))
    for name, change in (("waiting", 1_772_367_022.0), ("coming", None)):
        Ledger.open_new(storage, name, plan, (), {}, Settings("/nowhere", "python"))
        with storage.database.writing() as connection:
            connection.execute("UPDATE campaigns SET created_at = COALESCE(?, created_at) WHERE campaign_id = ?",
                               (change, name))  # fmt: skip
    return storage, plan


@pytest.fixture
def watcher(made, tmp_path, monkeypatch, capsys):
    """Return a call that runs a command on that store, or on another, and returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WATCHERML_DIR", raising=False)

    def run(*words, folder=None):
        capsys.readouterr()
        code = main(["--data-dir", str(folder or made[0].path), *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_a_campaign_that_did_not_come_up_names_what_starts_it(made, watcher):
    takes_up = "watcher resume waiting"
    for words in (["recoveries"], ["recovery", "waiting"], ["recovery", "waiting", "--watch"]):
        code, out, _ = watcher(*words, "--format", "json")
        assert code == 0 and takes_up in out
    code, out, _ = watcher("stop", "waiting")
    assert code == 0 and "nothing is running. To start it:" in out and "resume waiting" in " ".join(out.split())
    code, _, err = watcher("verify", "waiting")
    assert code == 1 and "has no result yet" in err and takes_up in err and "--watch" not in err
    assert not resume.is_under_way(made[0], "waiting")


def test_a_campaign_that_may_still_come_up_is_followed_and_not_taken_up(made, watcher):
    assert "resume" not in watcher("recovery", "coming", "--format", "json")[1]
    code, _, err = watcher("verify", "coming")
    assert code == 1 and "`watcher recovery coming --watch`" in err and "resume" not in err
    assert resume.is_under_way(made[0], "coming")


def test_an_import_says_of_each_campaign_what_its_own_store_said(made, watcher, tmp_path):
    there = tmp_path / "there"
    assert watcher("export", made[1].source.run_id, "--out", "run.zip")[0] == 0
    document = json.loads(watcher("import", "run.zip", "--format", "json", folder=there)[1])
    assert document["claims"] == {"good": "verified", "passed": "not_recovered"}
    text = text_import(document)
    assert "good: verified elsewhere, not by this store" in text
    assert "passed: not recovered elsewhere, not by this store" in text and text.count("verified elsewhere") == 1
    for command in ("stop", "resume"):
        code, _, err = watcher(command, "good", folder=there)
        assert code == 3 and "came with an imported run: `watcher recovery good`" in err and "recoveries" not in err


def test_a_proposal_that_was_withheld_names_the_flags_that_plan_it(made):
    with pytest.raises(NotFound) as caught:
        made[1].proposal("sequence-64")
    assert "--allow-approval-required" in caught.value.remedy and "--allow-semantic-changes" in caught.value.remedy


def test_an_interpreter_may_be_named_by_a_path_from_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text("#!/bin/sh\nexit 7\n")
    (tmp_path / "bin" / "python").chmod(0o700)
    (tmp_path / "elsewhere").mkdir()
    assert _run_child({}, str(tmp_path / "elsewhere"), "bin/python", 30.0).returncode == 7
    assert interpreter("bin/python") == str(tmp_path / "bin" / "python")
    assert interpreter("./python") == str(tmp_path / "python")
    assert interpreter("python3") == "python3" and interpreter(None) == sys.executable


@pytest.mark.parametrize("python", ["/no/such/python", "no/such/python", "no-such-python"])
def test_a_campaign_whose_interpreter_is_not_there_starts_nothing(made, python):
    before = len(made[0].audit.campaigns())
    with pytest.raises(InvalidValue, match="an interpreter that can be started") as caught:
        watcherml.start_recovery(watcherml.RecoveryPreparation(made[1], made[0]), python=python)
    assert "--python-executable" in caught.value.remedy and len(made[0].audit.campaigns()) == before
