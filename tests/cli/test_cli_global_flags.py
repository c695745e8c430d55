"""The flags that every command has: what each changes, for each command, and where it has nothing to change."""

import argparse
import importlib.machinery
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import types

import pytest
import steady_store
from builders import TEXT_ENTRYPOINT
from steady_store import FAILED, GOOD, LONG, LOST, OTHER, REFUSED, VERIFIED

import watcherml
from watcherml.api import doctor
from watcherml.api.recover import Campaign
from watcherml.api.result import RecoveryResult
from watcherml.cli.commands import COMMANDS, demo
from watcherml.cli.console import Console
from watcherml.cli.demo_folder import DemoFolder
from watcherml.cli.json_keys import KEYS
from watcherml.cli.main import command_parser, main
from watcherml.report import plain, safe
from watcherml.store.storage import Storage

PLAN = f"{FAILED} --entrypoint ent:train --no-predict --minimum-progress-steps 50"
# One line a command that ends at once; `recover` ends with 5, because nobody can be asked.
LINES = {
    "demo": "demo --dir edited --keep", "init": "init", "doctor": "doctor", "runs": "runs",
    "inspect": f"inspect {FAILED}", "failures": "failures", "resolve": f"resolve {OTHER} --by ada",
    "compare": f"compare {GOOD} {FAILED}", "prepare-recovery": f"prepare-recovery {PLAN}", "recover": f"recover {PLAN}",
    "recoveries": "recoveries", "recovery": f"recovery {REFUSED}", "verify": f"verify {VERIFIED}",
    "export": f"export {GOOD}", "import": "import good.zip --as theirs", "pack": "pack",
    "delete": f"delete {OTHER} --yes",
    "prune": "prune --keep 0 --yes", "scan": "scan", "stop": f"stop {LOST}", "resume": f"resume {VERIFIED}",
    "schema": "schema",
}  # fmt: skip
# The page server never ends by itself: its own test is below.
assert set(LINES) == set(COMMANDS) - {"ui"}
CODES = {"demo": 1, "recover": 5, "resume": 1}
# Looks at no store.
STORELESS = {"schema"}
# A sentence or two, nothing in them that is good or bad. What `delete` and `prune` ask is on standard error.
COLOURLESS = {"init", "export", "import", "pack", "delete", "prune", "stop", "resume"}
# These say their result and nothing else.
QUIET_ALREADY = {"resolve", "export", "import", "pack", "delete", "prune", "resume"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    steady_store.make(folder / ".watcherml")
    (folder / "ent.py").write_text(TEXT_ENTRYPOINT)
    edited = DemoFolder(folder / "edited")
    edited.make()
    edited.code.write_text("raise ValueError('edited')\n")
    assert main(["--data-dir", str(folder / ".watcherml"), "export", GOOD, "--out", str(folder / "good.zip")]) == 0
    return folder


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """An own copy, without what takes seconds and is not asked about here."""
    shutil.copytree(made, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("WATCHERML_DIR", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    for name in ("CUDA_VISIBLE_DEVICES", "OMP_WAIT_POLICY"):  # the demo sets them for its processes
        monkeypatch.setenv(name, os.environ.get(name, ""))
    # What these two find is shown in test_cli_doctor.
    monkeypatch.setattr(doctor, "_torch", lambda: iter(()))
    monkeypatch.setattr(doctor, "_worker", lambda: doctor.Finding("Trial", "ok", "Not tried."))
    if "torch" not in sys.modules:  # nor is it needed to see where the demo goes
        torch = types.ModuleType("torch")
        torch.__spec__ = importlib.machinery.ModuleSpec("torch", None)
        monkeypatch.setitem(sys.modules, "torch", torch)
    return tmp_path / "here"


def on_screen(monkeypatch, words, stream="stdout"):
    """Run a command in this process with a real terminal as one of its streams; returns its code and what is shown."""
    outer, inner = os.openpty()
    shown = []

    def read():
        while True:
            try:
                chunk = os.read(outer, 65_536)
            except OSError:
                return
            shown.append(chunk)

    reader = threading.Thread(target=read)
    reader.start()
    with monkeypatch.context() as patched, open(inner, "w", encoding="utf-8") as terminal:
        patched.setattr(f"sys.{stream}", terminal)
        code = main(words)
        terminal.flush()
    reader.join()
    os.close(outer)
    return code, b"".join(shown).decode().replace("\r\n", "\n")


def named(said):
    return said.out + said.err


@pytest.mark.parametrize("name", COMMANDS)
def test_the_global_flags_are_the_same_everywhere(name, capsys):
    flags = {one for action in command_parser(name)._actions for one in action.option_strings}
    assert {"-h", "--help", "--version", "--data-dir", "--no-color", "--quiet", "--format"} <= flags
    assert main([name, "--version"]) == 0 and watcherml.__version__ in capsys.readouterr().out
    assert main(["--help", name]) == 0
    before = capsys.readouterr().out
    assert main([name, "-h"]) == 0 and capsys.readouterr().out == before


@pytest.mark.parametrize("name", LINES)
def test_data_dir_names_another_store(name, here, capsys):
    shutil.copytree(".watcherml", "moved")
    shutil.rmtree(".watcherml")

    def observed(*flags):
        capsys.readouterr()
        code = main([*LINES[name].split(), *flags])
        return code, named(capsys.readouterr()), len(Storage(here / "moved").list_runs())

    without = observed()
    shutil.rmtree(".watcherml", ignore_errors=True)
    for archive in here.glob("watcher*.zip"):
        archive.unlink()
    with_it = observed("--data-dir", "moved")
    assert with_it[0] == CODES.get(name, 0)
    assert (without == with_it) == (name in STORELESS)


@pytest.mark.parametrize("name", LINES)
def test_no_color_takes_the_colour_away(name, here, monkeypatch, capsys):
    line = LINES[name].split()
    code, coloured = on_screen(monkeypatch, line)
    assert code == CODES.get(name, 0) and ("\x1b[" in coloured) == (name not in COLOURLESS)
    if name in COLOURLESS:
        return
    assert "\x1b[" not in on_screen(monkeypatch, [*line, "--no-color"])[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in on_screen(monkeypatch, line)[1]


@pytest.mark.parametrize("name", ["delete", "prune"])
def test_what_a_person_is_asked_has_colour_on_its_own_terminal_alone(name, here, monkeypatch, capsys):
    line = LINES[name].replace(" --yes", "").split()
    assert "\x1b[" in on_screen(monkeypatch, line, "stderr")[1]
    assert "\x1b[" not in on_screen(monkeypatch, [*line, "--no-color"], "stderr")[1]
    capsys.readouterr()
    assert "\x1b[" not in on_screen(monkeypatch, line)[1] + capsys.readouterr().err


@pytest.mark.parametrize("name", LINES)
def test_quiet_leaves_the_result_alone(name, here, capsys):
    line = LINES[name].split()
    takes_output = any("--output" in action.option_strings for action in command_parser(name)._actions)
    if takes_output and name not in ("demo", "recover", "prepare-recovery", "resume"):
        line += ["--output", "result.txt"]  # "Wrote result.txt." is progress
    capsys.readouterr()
    if name in QUIET_ALREADY:
        main([*line, "--quiet"])
        assert named(capsys.readouterr()) != ""
        return
    main(line)
    told = capsys.readouterr().out
    main([*line, "--quiet"])
    quiet = capsys.readouterr().out
    assert told != quiet and (quiet == "" or told.startswith(quiet.rstrip("\n")))


@pytest.mark.parametrize("name", LINES)
def test_format_and_output_choose_the_face_and_where_it_goes(name, here, capsys):
    parser, line = command_parser(name), LINES[name].split()
    (choices,) = [action.choices for action in parser._actions if "--format" in action.option_strings]
    assert choices[:2] == ("text", "json")
    if name in CODES:  # they write a result after a campaign only; an error is JSON too
        assert main([*line, "--format", "json"]) == CODES[name]
        said = capsys.readouterr()
        assert said.out == "" and json.loads(said.err)["kind"] == "error"
        return
    if not any("--output" in action.option_strings and action.dest == "output" for action in parser._actions):
        assert main([*line, "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["kind"]
        return
    faces = {}
    for form in choices:
        assert main([*line, "--format", form, "--output", "result"]) == 0
        faces[form] = (here / "result").read_text()
    assert len(set(faces.values())) == len(choices)
    assert json.loads(faces["json"]) and "\x1b" not in "".join(faces.values())
    assert "<html" in faces.get("html", "<html") and faces.get("markdown", "#").lstrip().startswith(("#", ">", "*"))


def test_the_page_server_takes_them_too(here):
    shutil.copytree(".watcherml", "moved")
    for words, wanted in ((["--quiet", "--no-color"], "here/.watcherml at"), (["--data-dir", "moved"], "moved at")):
        command = [sys.executable, "-m", "watcherml", "ui", "--port", "0", "--no-browser", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ui:
            first = ui.stdout.readline()
            ui.send_signal(signal.SIGINT)
            said = first + "".join(ui.communicate(timeout=60))
        assert wanted in said and "\x1b[" not in said and ui.returncode == 130, said


def test_the_end_of_the_demo_can_be_written_to_a_file_and_names_its_keys(here, monkeypatch, capsys):
    storage = Storage(here / ".watcherml")
    campaign, result = Campaign(VERIFIED, storage), RecoveryResult.of_campaign(VERIFIED, storage)

    def ended(form, output=None):
        values = argparse.Namespace(data_dir=str(storage.path), format=form, output=output)
        story = demo._Story(values, Console(json=form == "json"), DemoFolder(here / "edited"))
        assert story.ending(FAILED, campaign, result, 61.5) == 0
        return capsys.readouterr().out

    document = json.loads(ended("json"))
    assert list(document) == KEYS["demo"].split("; then one line with ")[1].replace(" (verdict)", "").split(", ")
    assert "Verified on" in ended("text") and "Took 1 min 2 s" in ended("text")
    assert ended("json", "verdict.json") == "" and json.loads((here / "verdict.json").read_text()) == document
    shown = ended("text", "verdict.txt")
    assert "Wrote verdict.txt." in shown and "Verified" not in shown
    assert "Verified" in (here / "verdict.txt").read_text()


# -- the width of a terminal ------------------------------------------------------------------------------------------

WRAPPED = ["init", "runs", "failures", "compare", "prepare-recovery", "recoveries", "recovery", "verify", "export",
           "delete", "scan", "stop", "schema"]  # fmt: skip


@pytest.mark.parametrize("name", WRAPPED)
def test_nothing_is_wider_than_a_narrow_terminal(name, here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.argv", ["watcher"])
    line = ["--no-color", *LINES[name].split()]
    shown = on_screen(monkeypatch, line)[1].replace(str(here), "/here")
    assert max(map(len, shown.splitlines())) <= 80, shown
    monkeypatch.setenv("COLUMNS", "200")
    wide = on_screen(monkeypatch, [*line, "--force"] if name == "export" else line)[1]
    assert plain.WIDTH == 96 and (name in ("delete", "init", "scan") or shown != wide)


@pytest.mark.parametrize("columns", [80, 120, 200])
@pytest.mark.parametrize("command", ["runs", "failures"])
def test_a_name_of_two_hundred_characters_moves_no_column(command, columns, here, monkeypatch):
    storage = Storage(here / ".watcherml")
    with storage.database.writing() as connection:
        connection.execute("UPDATE runs SET project = ?, title = ? WHERE run_id = ?", (LONG, LONG, OTHER))
        connection.execute("UPDATE runs SET title = 'トマト' WHERE run_id = ?", (FAILED,))
        connection.execute("UPDATE capsules SET sentence = ? WHERE run_id = ?", (LONG, OTHER))
    monkeypatch.setenv("COLUMNS", str(columns))
    title, *rows = on_screen(monkeypatch, ["--no-color", command])[1].splitlines()
    rows = [row for row in rows if row.startswith((OTHER, FAILED, GOOD))]
    assert len(rows) == (3 if command == "runs" else 2) and max(map(safe.width, [title, *rows])) <= columns
    mark, words = ("Status", ("failed", "success")) if command == "runs" else ("State", ("open", "resolved"))
    starts = {safe.width(row[: min(row.index(word) for word in words if word in row)]) for row in rows}
    assert starts == {title.index(mark)}
    if columns == 200:
        assert "a-name-of-two-hu…xxxxxxx" in "\n".join(rows) and "トマト" in "\n".join(rows)


@pytest.mark.parametrize("name", ["runs", "failures", "inspect"])
def test_what_a_person_called_a_run_stands_beside_its_id(name, here, capsys):
    line = [name, OTHER] if name == "inspect" else [name]
    assert main(line) == 0
    assert "Wrong data path" in capsys.readouterr().out
    assert main([*line, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    row = document["run"] if name == "inspect" else document[name][0]
    assert (row["run_id"], row["title"]) == (OTHER, "Wrong data path")
