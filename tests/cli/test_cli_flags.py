"""A row a flag: for each flag of each command something that a person can see changes with it.

The flags come from the parsers, so a new one without a row fails. Those that every command has are in
``test_cli_global_flags``, those of a contract and a campaign in ``test_cli_campaign_flags``.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import psutil
import pytest
import steady_store
from steady_store import FAILED, GOOD, LOST, OTHER, PREPARED, REFUSED, VERIFIED

from watcherml.api.removal import deletions
from watcherml.campaign import events
from watcherml.campaign.ledger import Ledger
from watcherml.cli.commands import COMMANDS
from watcherml.cli.demo_folder import DemoFolder
from watcherml.cli.json_keys import KEYS
from watcherml.cli.main import command_parser, main
from watcherml.platform import boot_id
from watcherml.protocol.verdict import Ending, RecoveryChain
from watcherml.store.storage import Storage
from watcherml.verdict.rank import rank
from watcherml.verdict.verify import verify

EVERYWHERE = {"--help", "--version", "--data-dir", "--no-color", "--quiet", "--format", "--output"}
OF_A_CAMPAIGN = {"prepare-recovery", "recover"}
ROWS = {}


def row(command, *flags):
    """Register a row for flags of one command; the test that it decorates is called with ``Here``."""

    def register(test):
        ROWS.update({(command, flag): test for flag in flags})
        return test

    return register


def flags_of(command):
    return {action.option_strings[-1] for action in command_parser(command)._actions if action.option_strings}


class Here:
    """An own copy of the steady store, and the program in it."""

    def __init__(self, folder, capsys):
        self.folder, self.capsys, self.storage = folder, capsys, Storage(folder / ".watcherml")

    def run(self, line, code=0):
        self.capsys.readouterr()
        assert main(line.split()) == code
        said = self.capsys.readouterr()
        return said.out + said.err

    def json(self, line):
        return json.loads(self.run(f"{line} --format json"))

    def ids(self, line):
        document = self.json(line)
        rows = document[document["kind"]]
        return [one.get("campaign_id") or one["run_id"] for one in rows]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    steady_store.make(folder / ".watcherml")
    return folder


@pytest.fixture
def here(made, tmp_path, monkeypatch, capsys):
    shutil.copytree(made, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("WATCHERML_DIR", raising=False)
    for name in ("CUDA_VISIBLE_DEVICES", "OMP_WAIT_POLICY"):  # the demo sets them for its processes
        monkeypatch.setenv(name, os.environ.get(name, ""))
    return Here(tmp_path / "here", capsys)


def test_every_flag_has_a_row():
    present = {(name, flag) for name in COMMANDS if name not in OF_A_CAMPAIGN for flag in flags_of(name) - EVERYWHERE}
    assert present == set(ROWS)


# -- lists -----------------------------------------------------------------------------------------------------------


@row("runs", "--project", "--status", "--limit")
def runs_are_chosen(here):
    assert here.ids("runs") == [OTHER, FAILED, GOOD]
    assert here.ids("runs --project demo") == [FAILED, GOOD]
    assert here.ids("runs --status failed") == [OTHER, FAILED]
    assert here.ids("runs --limit 1") == [OTHER]
    assert here.ids("runs --project demo --status failed --limit 1") == [FAILED], "the limit comes after the filters"


@row("runs", "--trials")
def runs_of_trials(here):
    with here.storage.database.writing() as connection:
        connection.execute("UPDATE runs SET role = 'trial' WHERE run_id = ?", (OTHER,))
    assert here.ids("runs") == [FAILED, GOOD]
    assert here.ids("runs --trials") == [OTHER, FAILED, GOOD]


@row("failures", "--project", "--unresolved", "--limit")
def failures_are_chosen(here):
    assert here.ids("failures") == [OTHER, FAILED]
    assert here.ids("failures --project demo") == [FAILED]
    assert here.ids("failures --unresolved") == [OTHER]
    assert here.ids("failures --limit 1") == [OTHER]
    assert here.ids("failures --project demo --limit 1") == [FAILED], "the limit comes after the filters"


@row("recoveries", "--project", "--status", "--verified", "--limit")
def campaigns_are_chosen(here):
    assert here.ids("recoveries") == [LOST, PREPARED, REFUSED, VERIFIED]
    assert here.ids("recoveries --project other") == []
    assert here.ids("recoveries --status not_recovered") == [REFUSED]
    assert here.ids("recoveries --verified") == [VERIFIED]
    assert here.ids("recoveries --limit 2") == [LOST, PREPARED]
    assert here.ids("recoveries --verified --limit 1") == [VERIFIED], "the limit comes after the filters"


@row("scan", "--limit", "--check")
def scan_counts_all_and_shows_some(here):
    assert "Nothing looks like a secret" in here.run("scan --check")
    folder = here.storage.path / "trials"
    folder.mkdir()
    for name in "ab":
        (folder / name).write_text("token=ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8")
    document = here.json("scan --limit 1")
    assert (document["count"], len(document["findings"])) == (2, 1)
    assert len(here.json("scan")["findings"]) == 2
    here.run("scan --check", code=1)


# -- one thing --------------------------------------------------------------------------------------------------------


@row("resolve", "--note", "--by", "--reopen")
def a_failure_is_marked(here):
    marked = here.json(f"resolve {OTHER} --note moved --by ada")
    assert (marked["resolved"], marked["resolved_note"], marked["resolved_by"]) == (True, "moved", "ada")
    assert here.json(f"resolve {OTHER} --reopen")["resolved"] is False
    bare = here.json(f"resolve {OTHER}")
    assert bare["resolved_note"] != "moved" and bare["resolved_by"] != "ada"


@row("recovery", "--watch")
def watching_is_json_lines(here):
    assert here.run(f"recovery {VERIFIED} --format json").count("\n") > 100
    assert here.run(f"recovery {VERIFIED} --format json --watch").count("\n") == 1


@row("export", "--out", "--force")
@row("pack", "--out", "--force")
def an_archive_is_written(here):
    for command, usual in ((f"export {GOOD}", f"watcher-{GOOD}.zip"), ("pack", "watcherml-store.zip")):
        here.run(command)
        here.run(f"{command} --out mine.zip")
        assert (here.folder / usual).is_file() and (here.folder / "mine.zip").is_file()
        before = (here.folder / "mine.zip").read_bytes()
        assert "--force" in here.run(f"{command} --out mine.zip", code=1)
        assert (here.folder / "mine.zip").read_bytes() == before
        (here.folder / "mine.zip").write_text("somebody's")
        here.run(f"{command} --out mine.zip --force")
        assert (here.folder / "mine.zip").read_bytes()[:2] == b"PK"
        (here.folder / "mine.zip").unlink()


@row("import", "--as")
def a_run_is_imported_under_another_id(here):
    here.run(f"export {GOOD} --out good.zip")
    assert here.json("import good.zip --as theirs")["run_id"] == "theirs"
    assert "theirs" in here.ids("runs")
    assert here.json("import good.zip --data-dir elsewhere")["run_id"] == GOOD


@row("delete", "--campaigns", "--yes", "--by", "--reason")
def a_deletion_is_asked_for_and_kept(here):
    assert "--campaigns" in here.run(f"delete {FAILED} --yes", code=1)
    here.run(f"delete {FAILED} --campaigns", code=5)
    assert FAILED in here.ids("runs")
    here.run(f"delete {FAILED} --campaigns --yes --by ada --reason tidying")
    assert FAILED not in here.ids("runs") and here.ids("recoveries") == []
    (kept,) = deletions(here.storage)
    assert (kept.deleted_by, kept.reason) == ("ada", "tidying")


@row("prune", "--older-than", "--keep", "--project", "--yes")
def old_runs_are_pruned(here):
    def planned(flags):
        return here.json(f"prune {flags} --yes")["run_ids"]

    assert planned("--older-than 90000") == [] == planned("--keep 1 --project other")
    here.run("prune --keep 0", code=5)
    assert planned("--keep 0 --project other") == [OTHER]
    assert planned("--older-than 0.5") == [GOOD]  # the other one has campaigns that stand on it


@row("prune", "--trials", "--by", "--reason")
def trials_data_is_pruned(here):
    run_id = "demo-first-run-2"
    with here.storage.database.writing() as connection:
        connection.execute(
            "INSERT INTO runs (run_id, project, role, campaign_id, trial_id, status, started_at, ended_at,"
            " heartbeat_at, pid, process_started, boot_id, config) SELECT ?, project, 'trial', ?, ?, status,"
            " started_at, ended_at, heartbeat_at, pid, process_started, boot_id, config FROM runs WHERE run_id = ?",
            (run_id, VERIFIED, f"{VERIFIED}-t02", GOOD),
        )
    assert run_id not in here.json("prune --older-than 0 --yes --project demo")["run_ids"]
    assert here.json("prune --trials --yes --by ada --reason space")["run_ids"] == [run_id]
    told = [(one.deleted_by, one.reason) for one in deletions(here.storage)]
    assert ("ada", "space") in told or told == [], "what stays on record is no deletion from the audit trail"


@row("stop", "--no-wait")
def stopping_waits_for_the_end_unless_told_not_to(here):
    ledger = Ledger(here.storage, PREPARED)
    process = psutil.Process()
    ledger.event(events.STARTED, {"pid": process.pid, "started": process.create_time(), "boot_id": boot_id()})
    assert here.json(f"stop {PREPARED} --no-wait")["lifecycle"] == "running"
    plan, ending = ledger.plan(), Ending("stopped_by_user")
    verdict = verify(PREPARED, plan, (), (), ending)
    chain = RecoveryChain(PREPARED, plan, (), (), ending, rank(plan, (), ()), verdict)

    def supervise():
        own = Ledger(Storage(here.storage.path), PREPARED)
        while sum(one["type"] == events.STOP_REQUESTED for one in own.storage.audit.events(PREPARED)) < 2:
            time.sleep(0.02)
        own.finish(chain)

    supervisor = threading.Thread(target=supervise)
    supervisor.start()
    found = here.json(f"stop {PREPARED}")
    supervisor.join()
    assert (found["was"], found["lifecycle"]) == ("running", "ended")


# -- the demo and the browser ------------------------------------------------------------------------------------------


@row("demo", "--dir", "--keep")
def the_demo_runs_in_its_folder(here):
    folder = DemoFolder(here.folder / "mine")
    folder.make()
    folder.code.write_text("raise ValueError('the edited code ran')\n")
    assert "--keep" in here.run("demo --dir mine", code=1)
    assert "the edited code ran" in here.run("demo --dir mine --keep", code=1)
    assert not (here.folder / "watcherml-demo").exists()


def served(words, environment=None):
    """Start the UI, and return what it says once it is ready, after its end."""
    command = [sys.executable, "-m", "watcherml", "ui", "--format", "json", *words.split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}) as ui:
        document = json.loads(ui.stdout.readline())
        assert list(document) == KEYS["ui"].replace(" (ui)", "").split(", ")
        address = document["address"]
        with urllib.request.urlopen(address.replace("0.0.0.0", "127.0.0.1"), timeout=60) as answer:
            assert answer.status == 200  # only now is what comes before serving done, a browser included
        ui.send_signal(signal.SIGINT)
        assert ui.wait(60) == 130
    return address


def written(path):
    """The text of a file that another process is about to write."""
    deadline = time.monotonic() + 60
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline, f"waited in vain for {path}"
        time.sleep(0.02)
    return path.read_text().strip()


@row("ui", "--host", "--port", "--no-browser", "--allow-remote")
def the_ui_listens_where_it_is_told(here):
    opened = here.folder / "opened"
    browser = here.folder / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > "{opened}"\n')
    browser.chmod(0o755)
    with_browser = {"BROWSER": f"{browser} %s", "DISPLAY": ":0"}
    address = served("--host 127.0.0.2 --port 0 --no-browser", with_browser)
    assert address.startswith("http://127.0.0.2:") and not address.endswith(":7331") and not opened.exists()
    address = served("--port 0", with_browser)
    assert written(opened) == address
    assert "--allow-remote" in here.run("ui --host 0.0.0.0 --no-browser", code=2)
    assert served("--host 0.0.0.0 --port 0 --no-browser --allow-remote")


@pytest.mark.parametrize("test", dict.fromkeys(ROWS.values()), ids=lambda test: test.__name__.replace("_", "-"))
def test_a_flag_changes_what_can_be_seen(test, here):
    test(here)
