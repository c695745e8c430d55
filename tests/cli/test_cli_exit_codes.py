"""Every exit code that every command has, in one table; a code without a row fails.

Some ends are shown where their setting is: a demo that is verified (``test_cli_demo``), real campaigns and Ctrl-C at
them (``test_cli_recover``), a campaign that is resumed (``test_cli_campaign_flags``).
"""

import os
import shutil
import signal
import zipfile

import pytest
import steady_store
from builders import TEXT_ENTRYPOINT
from steady_store import FAILED, GOOD, LOST, OTHER, REFUSED, VERIFIED

from watcherml.api import doctor
from watcherml.cli.commands import COMMANDS, load
from watcherml.cli.main import main
from watcherml.store.storage import Storage

PLAN = f"recover {FAILED} --entrypoint ent:train --no-predict --minimum-progress-steps 50"
RESULT = f".watcherml/artifacts/{VERIFIED}/recovery-result.json"

# What stands for the words: {FAILED} and its like; @name is a file that the fixture makes.
ROWS = [
    # -- 0
    ("init", 0), ("runs", 0), (f"inspect {FAILED}", 0), ("failures", 0), (f"resolve {OTHER}", 0),
    (f"compare {GOOD} {FAILED}", 0), ("recoveries", 0), (f"recovery {REFUSED}", 0), (f"verify {REFUSED}", 0),
    (f"export {GOOD}", 0), ("import @export.zip --as other", 0), ("pack", 0), (f"delete {OTHER} --yes", 0),
    ("prune", 0), ("prune --keep 0 --yes", 0), ("scan", 0), (f"stop {LOST}", 0), (f"stop {VERIFIED} --no-wait", 0),
    ("schema", 0), ("schema recovery-plan", 0), ("doctor", 0),
    (f"prepare-{PLAN.replace('recover', 'recovery', 1)}", 0),
    # -- 1: what is there cannot be used
    ("demo --dir @letter", 1), (f"delete {FAILED} --yes", 1), (f"export {GOOD} --out @letter", 1),
    ("pack --out @letter", 1), ("import @letter", 1), ("import @missing", 1),
    ("verify @letter", 1), ("verify @altered.json", 1),
    (f"resume {VERIFIED}", 1), (f"recover {GOOD} --entrypoint ent.py:train --minimum-progress-steps 50 --yes", 3),
    (f"recover {FAILED} --entrypoint ent.py:train --minimum-progress-steps 50 --yes", 1),
    (f"recover {FAILED} --entrypoint ent:train --minimum-progress-steps 50 --confirmation-runs 9 --yes", 1),
    (f"prepare-recovery {FAILED} --entrypoint ent.py:train", 1), ("schema --output .", 1),
    ("recover --plan @letter --yes", 1), ("scan --check --data-dir @leaky", 1),
    ("ui --host 203.0.113.1 --allow-remote --no-browser", 1),
    *((f"{words} --data-dir @foreign", 1) for words in (
        "init", "doctor", "runs", "inspect x", "failures", "resolve x", "compare x y", "recoveries", "recovery x",
        "verify x", "export x", "import @export.zip", "pack", "delete x", "prune", "scan", "stop x", "resume x",
        "prepare-recovery x --entrypoint ent:train", "recover x --entrypoint ent:train",
    )),
    # -- 2
    *((f"{name} --nonsense", 2) for name in COMMANDS),
    ("nonsense", 2), ("", 2), ("runs --limit 0", 2), ("runs --status sleeping", 2), ("inspect", 2), ("compare x", 2),
    ("resolve x --reopen --note y", 2), ("recoveries --verified --status stopped", 2), ("schema nothing", 2),
    ("prune --keep -1", 2), ("prune --older-than soon", 2), ("ui --port 70000", 2), ("recover", 2),
    ("recover x --plan @letter", 2), ("prepare-recovery x", 2), ("recover --plan @missing", 2),
    (f"{PLAN} --trials-root /elsewhere", 2), (f"{PLAN} --campaign-id ../x", 2), (f"{PLAN} --authorize batch-32x2", 2),
    (f"{PLAN} --metric loss", 2), (f"{PLAN} --despite C10", 2), (f"{PLAN} --secret lr=hunter2", 2),
    (f"{PLAN} --automatic-only --allow-high-risk", 2), (f"{PLAN} --max-peak-vram-gib 0", 2),
    (f"{PLAN} --capabilities @missing", 2),
    # -- 3
    ("inspect nobody", 3), (f"compare {GOOD} nobody", 3), ("resolve nobody", 3), (f"resolve {GOOD}", 3),
    ("recovery nobody", 3), ("recovery nobody --watch", 3), ("verify nobody", 3), ("export nobody", 3),
    ("delete nobody --yes", 3), ("stop nobody", 3), ("resume nobody", 3),
    ("prepare-recovery nobody --entrypoint ent:train", 3), ("recover nobody --entrypoint ent:train --yes", 3),
    (f"{PLAN} --authorize nothing --approved-by a --approval-reason b --yes", 3),
    *((f"{words} nobody --data-dir @nothing", 3) for words in ("inspect", "resolve", "recovery", "export", "stop")),
    # -- 4: a claim that is not this store's; campaigns that end without a verified recovery
    (f"verify {RESULT} --data-dir @nothing", 4),
    # -- 5
    (PLAN, 5), (f"{PLAN} --format json", 5), (f"delete {OTHER}", 5), ("prune --keep 0", 5),
]  # fmt: skip
ELSEWHERE = {("demo", 0), ("recover", 0), ("recover", 4), ("resume", 0), ("resume", 4), ("ui", 0)}
# A demo that is not verified would take two minutes; it ends as `recover` does, through the same constant.
ELSEWHERE |= {("demo", 4)}
NAMES_SOMETHING = {"inspect", "resolve", "compare", "prepare-recovery", "recover", "recovery", "verify", "export",
                   "import", "delete", "stop", "resume"}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The steady store and the files that rows name, once."""
    folder = tmp_path_factory.mktemp("made")
    storage = steady_store.make(folder / ".watcherml")
    (folder / "letter").write_text("not what you are looking for")
    (folder / "foreign").mkdir()
    (folder / "foreign" / "watcherml.db").write_bytes(b"not a database, but somebody's letter" * 100)
    (folder / "ent.py").write_text(TEXT_ENTRYPOINT)
    text = storage.audit.records(VERIFIED, "recovery-result")[-1]
    (folder / "altered.json").write_text(text.replace("true", "false"))
    leaky = Storage(folder / "leaky")
    leaky.create()
    (leaky.path / "trials").mkdir(exist_ok=True)
    (leaky.path / "trials" / "log").write_text("token=ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8")
    result = folder / RESULT
    result.parent.mkdir(parents=True, exist_ok=True)
    result.write_text(text)
    return folder


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """An own copy of all that."""
    folder = tmp_path / "here"
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("WATCHERML_DIR", raising=False)
    return folder


@pytest.mark.parametrize(("line", "code"), ROWS, ids=[f"{code} {line}" for line, code in ROWS])
def test_a_command_ends_with_its_exit_code(line, code, here, capsys, monkeypatch):
    if line.startswith("doctor"):
        monkeypatch.setattr(doctor, "_torch", lambda: iter(()))  # with seconds of both in test_cli_doctor
        monkeypatch.setattr(doctor, "_worker", lambda: doctor.Finding("Trial", "ok", "Not tried."))
    if "export.zip" in line:
        assert main(["export", GOOD, "--out", "export.zip"]) == 0
    capsys.readouterr()
    assert main([word.removeprefix("@") for word in line.split()]) == code
    said = capsys.readouterr()
    assert "Traceback (most recent" not in said.err
    assert code in (0, 1, 4) or "watcher: " in said.err or '"kind": "error"' in said.err


@pytest.mark.parametrize("name", COMMANDS)
def test_an_interrupt_ends_every_command_with_130(name, here, capsys, monkeypatch):
    command = load(name)
    monkeypatch.setattr(command, "run", lambda values, console: os.kill(os.getpid(), signal.SIGINT) or 0)
    needed = {"compare": ["x", "y"], "prepare-recovery": ["x", "--entrypoint", "ent:train"]}
    words = needed.get(name, ["x"] if name in NAMES_SOMETHING else [])
    assert main([name, *words, "--format", "json"]) == 130
    assert '"interrupted"' in capsys.readouterr().err


def test_every_code_of_every_command_has_a_row():
    shown = {(line.split()[0], code) for line, code in ROWS if line} | ELSEWHERE
    wanted = {(name, code) for name in COMMANDS for code in (0, 1, 2)}
    # What cannot be read as a file is wrong, not unknown.
    wanted |= {(name, 3) for name in NAMES_SOMETHING - {"import"}}
    wanted |= {(name, 4) for name in ("recover", "resume", "verify", "demo")}
    wanted |= {(name, 5) for name in ("recover", "delete", "prune")}
    assert wanted - shown == set()


def test_an_export_of_a_run_is_the_one_that_is_imported(here):
    assert main(["export", GOOD, "--out", "export.zip"]) == 0
    with zipfile.ZipFile("export.zip") as archive:
        assert "run.json" in archive.namelist()
