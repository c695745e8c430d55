"""What every command says about one fixed store, word for word, as text and as JSON, kept in ``golden/``.

A change that is meant: WATCHERML_UPDATE_GOLDEN=1 writes the files anew, and the difference is read before it is kept.
"""

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest
import steady_store
from builders import TEXT_ENTRYPOINT
from steady_store import FAILED, GOOD, LOST, OTHER, PREPARED, REFUSED, VERIFIED

from watcherml.api import doctor
from watcherml.cli import json_keys
from watcherml.cli.commands import COMMANDS
from watcherml.cli.main import command_parser, main, root_parser

GOLDEN = Path(__file__).parent / "golden"
UPDATE = os.environ.get("WATCHERML_UPDATE_GOLDEN") == "1"
# A path's length decides where a line is wrapped: every machine gets one of the same length.
HERE = "/tmp/wml-golden-00000000"
OLD = Path(__file__).parents[1] / "data" / "store-0.1"


@pytest.fixture(scope="module")
def made():
    """The store, made once; yields its folder."""
    folder = Path(tempfile.mkdtemp(prefix="watcherml-made-"))
    steady_store.make(folder / ".watcherml")
    (folder / "ent.py").write_text(TEXT_ENTRYPOINT)
    assert main(["--data-dir", str(folder / ".watcherml"), "export", GOOD, "--out", str(folder / "good.zip")]) == 0
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def here(made, monkeypatch):
    """An own copy of the store in a working directory of a fixed length."""
    folder = Path(tempfile.mkdtemp(prefix="wml-golden-", dir="/tmp"))
    assert len(str(folder)) == len(HERE), folder
    shutil.copytree(made, folder, dirs_exist_ok=True)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("WATCHERML_DIR", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.argv", ["watcher"])  # the commands that are named for the next step
    yield folder
    shutil.rmtree(folder)


def same_as_golden(name, text):
    """Compare with the file of that name, or write it."""
    path = GOLDEN / name
    if UPDATE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
        return
    assert path.is_file(), f"no {path.name}: {__doc__.splitlines()[2]}"
    assert text == path.read_text("utf-8"), path.name


CASES = {
    "runs": ["runs"],
    "runs-none": ["runs", "--project", "nothing"],
    "inspect-run": ["inspect", GOOD],
    "inspect-failure": ["inspect", FAILED],
    "inspect-other": ["inspect", OTHER],
    "failures": ["failures"],
    "resolve": ["resolve", OTHER, "--by", "ada", "--note", "the path is right now"],
    "reopen": ["resolve", FAILED, "--reopen"],
    "compare": ["compare", GOOD, FAILED],
    "prepare-recovery": ["prepare-recovery", FAILED, "--entrypoint", "ent:train", "--no-predict"],
    "recoveries": ["recoveries"],
    "recovery-verified": ["recovery", VERIFIED],
    "recovery-refused": ["recovery", REFUSED],
    "recovery-prepared": ["recovery", PREPARED],
    "recovery-lost": ["recovery", LOST],
    "verify": ["verify", VERIFIED],
    "export": ["export", FAILED],
    "import": ["import", "good.zip", "--as", "theirs"],
    "pack": ["pack"],
    "delete": ["delete", OTHER, "--yes", "--by", "ada", "--reason", "a wrong path"],
    "prune": ["prune"],
    "prune-runs": ["prune", "--keep", "0", "--yes", "--by", "ada"],
    "scan": ["scan"],
    "stop-ended": ["stop", VERIFIED],
    "stop-lost": ["stop", LOST],
    "init": ["init"],
    "schema": ["schema"],
    "schema-one": ["schema", "recovery-authorization"],
    "old-runs": ["--data-dir", "OLD", "runs"],
    "old-failures": ["--data-dir", "OLD", "failures"],
    "old-recoveries": ["--data-dir", "OLD", "recoveries"],
}
# They write the time of the test, or sizes that SQLite and zlib decide.
UNSTEADY = {"export", "pack", "delete", "prune", "prune-runs", "resolve", "reopen"}
MARKDOWN = {name: CASES[name] for name in ("inspect-run", "inspect-failure", "compare")}


# Their help names these keys in parentheses, as what comes in a certain case.
OTHER_KEYS = {"recovery-prepared", "recovery-lost", "prune", "schema-one"}


def told_keys(words):
    """The top-level keys that the help of these words' command names."""
    told = json_keys.KEYS[next(word for word in words if word in COMMANDS)].split("; then one line with ")[-1]
    while "(" in told:
        told = re.sub(r" ?\([^()]*\)", "", told)
    return told.split(", ")


def shown(here, capsys, words, name):
    old = here / "old"
    if "OLD" in words:
        shutil.copytree(OLD, old)
    capsys.readouterr()
    assert main(["old" if word == "OLD" else word for word in words]) == 0
    said = capsys.readouterr()
    text = said.err + said.out if name in ("delete", "prune-runs") else said.out
    text = text.replace(str(here), HERE)
    return steady_store.steady(text) if name in UNSTEADY else steady_store.without_digests(text)


@pytest.mark.parametrize("name", CASES)
def test_the_text_of_a_command(name, here, capsys):
    same_as_golden(f"{name}.txt", shown(here, capsys, CASES[name], name))


@pytest.mark.parametrize("name", CASES)
def test_the_json_of_a_command(name, here, capsys):
    text = shown(here, capsys, [*CASES[name], "--format", "json"], name)
    lines = text.splitlines()
    assert lines[0] == "{" or len(lines) == 1, "one document and nothing before it"
    document = json.loads(text)
    if name not in OTHER_KEYS:
        assert list(document) == told_keys(CASES[name])
    same_as_golden(f"{name}.json", text)


@pytest.mark.parametrize("name", MARKDOWN)
def test_the_markdown_of_a_command(name, here, capsys):
    same_as_golden(f"{name}.md", shown(here, capsys, [*CASES[name], "--format", "markdown"], name))


def flags_of(parser):
    """Each flag with what it takes, its choices and its default; no wrapped text, which differs between Pythons."""
    lines = []
    for action in parser._actions:
        name = "/".join(action.option_strings) or f"<{action.metavar}>"
        takes = "" if action.nargs == 0 or not action.option_strings else f" {action.metavar or 'VALUE'}"
        given = f" of {'|'.join(map(str, action.choices))}" if action.choices else ""
        default = "" if action.default in (None, False, [], "", "==SUPPRESS==") else f" = {action.default}"
        text = re.sub(r"\s+", " ", (action.help or "") % {"default": action.default})
        lines.append(f"  {name}{takes}{given}{default}: {text}")
    return lines


def test_the_flags_of_every_command():
    parts = [("watcher", root_parser()), *((f"watcher {name}", command_parser(name)) for name in COMMANDS)]
    text = "".join(f"{title}\n" + "\n".join(flags_of(parser)) + "\n\n" for title, parser in parts)
    same_as_golden("flags.txt", text)


def test_the_help_of_every_command_says_the_keys_of_its_json(capsys, monkeypatch):
    assert list(json_keys.KEYS) == list(COMMANDS)
    monkeypatch.setenv("COLUMNS", "80")
    for name, keys in json_keys.KEYS.items():
        assert main([name, "--help"]) == 0
        out = capsys.readouterr().out
        assert f"with --format json: {keys}" in " ".join(out.split("\n")[-12:]).replace("  ", " "), name
        assert max(map(len, out.split("with --format json")[1].splitlines())) <= 80


def test_doctor_names_its_keys(here, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "_torch", lambda: iter(()))
    monkeypatch.setattr(doctor, "_worker", lambda: doctor.Finding("Trial", "ok", "Not tried."))
    assert main(["doctor", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document) == told_keys(["doctor"]) and list(document["findings"][0]) == [
        "name", "status", "sentence", "remedy"]  # fmt: skip


def test_no_golden_file_is_left_over():
    wanted = {f"{name}.{ending}" for name in CASES for ending in ("txt", "json")}
    wanted |= {f"{name}.md" for name in MARKDOWN} | {"flags.txt"}
    wanted |= {f"{name}.{ending}" for name in ("recover", "resume") for ending in ("txt", "jsonl")}
    assert {path.name for path in GOLDEN.iterdir()} == wanted


def test_every_command_is_kept_here_or_shown_elsewhere():
    # What these three say differs from machine to machine: test_cli_doctor, test_ui_program, test_cli_demo.
    campaigns = {"recover", "resume"}  # test_cli_campaign_flags
    assert {word for words in CASES.values() for word in words if word in COMMANDS} | campaigns == set(COMMANDS) - {
        "doctor", "ui", "demo"}  # fmt: skip
