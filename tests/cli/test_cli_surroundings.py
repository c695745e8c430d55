"""What a shell hands over: full disks behind the streams, a deleted working directory, unknown homes, huge numbers."""

import contextlib
import json
import os
import shutil
import subprocess
import sys

import pytest
import steady_store

from watcherml.cli.main import main

FAILED = steady_store.FAILED


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The fixed store; no test changes it."""
    return str(steady_store.make(tmp_path_factory.mktemp("kept") / ".watcherml").path)


def told(capsys):
    """Return the error of a command that was asked for JSON."""
    said = capsys.readouterr()
    assert not said.out
    return json.loads(said.err)["error"]


# -- streams ---------------------------------------------------------------------------------------------------------

FULL = [
    (["runs"], 1),
    (["runs", "--format", "json"], 1),
    (["--help"], 1),
    (["--version"], 1),
    (["inspect", "--help"], 1),
]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full")
@pytest.mark.parametrize(("words", "code"), FULL, ids=lambda value: str(value)[:40])
def test_a_full_disk_behind_the_output_is_an_error_with_its_reason(words, code, kept):
    done = _program([*words, "--data-dir", kept] if words[0] == "runs" else words, stdout="/dev/full")
    assert done.returncode == code
    assert "standard output cannot be written" in done.stderr and "No space left" in done.stderr
    assert "unexpected" not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full")
def test_a_full_disk_behind_the_errors_leaves_the_exit_code(kept):
    for words, code in ((["nothing-of-the-kind"], 2), (["inspect", "unknown", "--data-dir", kept], 3)):
        assert _program(words, stderr="/dev/full").returncode == code


def _program(words, **files):
    with contextlib.ExitStack() as opened:
        given = {name: opened.enter_context(open(path, "w")) for name, path in files.items()}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **given}
        return subprocess.run([sys.executable, "-m", "watcherml", *words], text=True, timeout=60, **streams)


def test_a_store_whose_name_moves_the_cursor_is_named_harmlessly_and_as_a_shell_reads_it(kept, tmp_path, capsys):
    name = "it's \\ new\nline \x1b[31m"
    shutil.copytree(kept, tmp_path / name)
    for line in (["scan"], ["inspect", FAILED], ["runs", "--project", "none"]):
        assert main([*line, "--data-dir", str(tmp_path / name)]) == 0
        said = capsys.readouterr()
        assert "\x1b" not in said.out + said.err
        command = next((one for one in said.out.splitlines() if "--data-dir" in one), None)
        assert (command is None) == (line[0] in ("scan", "runs"))
        if command is not None:
            word = command[command.index("$'") : command.rindex("'") + 1]
            shell = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, text=True, timeout=60)
            assert shell.stdout == str(tmp_path / name)


# -- the working directory and homes ---------------------------------------------------------------------------------


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """A working directory that is deleted while this process stands in it."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.delenv("WATCHERML_DIR", raising=False)
    gone.rmdir()


RELATIVE = ["init", "runs", "failures", "recoveries", "doctor", "scan", "pack", f"inspect {FAILED}", "import a.zip"]


@pytest.mark.parametrize("line", RELATIVE)
def test_in_a_deleted_folder_a_command_says_that_the_store_is_nowhere(line, nowhere, capsys):
    assert main([*line.split(), "--format", "json"]) == 1
    error = told(capsys)
    assert error["code"] == "store" and "working directory was deleted" in error["message"] and error["remedy"]


@pytest.mark.parametrize("command", ["prepare-recovery", "recover"])
def test_in_a_deleted_folder_a_project_root_is_refused_by_name(command, nowhere, kept, capsys):
    words = [command, FAILED, "--entrypoint", "a:b", "--data-dir", kept, "--format", "json"]
    assert main(words) == 1
    error = told(capsys)
    assert error["code"] == "invalid_entrypoint" and error["message"] == "project_root" and "deleted" in error["got"]


def test_in_a_deleted_folder_a_store_by_its_whole_path_is_read(nowhere, kept, capsys):
    assert main(["runs", "--data-dir", kept]) == 0 and FAILED in capsys.readouterr().out
    assert main(["recovery", steady_store.VERIFIED, "--data-dir", kept]) == 0


HOMES = [
    (["runs", "--data-dir", "~nobody-at-all/store"], 0),  # as any other folder without a store
    (["inspect", FAILED, "--output", "~nobody-at-all/file"], 1),
    (["export", FAILED, "--out", "~nobody-at-all/file"], 1),
    (["recover", "--yes", "--plan", "~nobody-at-all/file"], 2),
    (["recover", FAILED, "--entrypoint", "a:b", "--yes", "--capabilities", "~nobody-at-all/file"], 2),
    (["prepare-recovery", FAILED, "--entrypoint", "a:b", "--project-root", "~nobody-at-all"], 1),
]


@pytest.mark.parametrize(("words", "code"), HOMES, ids=lambda value: str(value)[-24:])
def test_the_home_of_nobody_is_a_name_that_is_not_there(words, code, kept, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words if "--data-dir" in words else [*words, "--data-dir", kept]) == code
    said = capsys.readouterr()
    assert "~nobody-at-all" in said.out + said.err and "unexpected" not in said.err and not list(tmp_path.iterdir())


# -- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("digits", [20, 5_000])
def test_a_limit_beyond_all_rows_shows_all_of_them(digits, kept, capsys):
    for command in ("runs", "failures", "recoveries"):
        assert main([command, "--limit", "9" * digits, "--data-dir", kept, "--format", "json"]) == 0
        assert any(isinstance(rows, list) and rows for rows in json.loads(capsys.readouterr().out).values())


@pytest.mark.parametrize("columns", ["9" * 5_000, "-3", "", "many", "\N{SUPERSCRIPT TWO}"])
def test_columns_that_are_no_width_do_not_keep_the_help_away(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["runs", "--help"]) == 0 and "--limit" in capsys.readouterr().out
