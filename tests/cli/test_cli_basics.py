"""The command line without a campaign: flags, formats, exit codes, hostile names, terminals."""

import argparse
import json
import os
import subprocess
import sys

import pytest

import watcherml
from watcherml.cli.commands import COMMANDS, load
from watcherml.cli.main import main

HOSTILE = "a\nb\x1b[31m<script>alert(1)</script>\u202e"


def watcher(*words, **options):
    """Run the real program."""
    return subprocess.run(
        [sys.executable, "-m", "watcherml", *words], capture_output=True, text=True, timeout=60, check=False, **options
    )


@pytest.fixture
def recorded(storage, failed_run):
    """A store with a success and a failure; returns their ids."""
    good = watcherml.Run("demo", {"lr": 0.1}, storage, quiet=True)
    with good:
        good.log_metric("loss", float("nan"), step=1)
        good.log_metric("loss", 0.5, step=2)
    return good.run_id, failed_run()


# -- help and usage ---------------------------------------------------------------------------------------------


def test_the_help_lists_every_command_and_every_exit_code(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, summary in COMMANDS.items():
        assert name in shown and summary in shown
    for code in ("0  success", "3  unknown", "4  the campaign", "5  declined", "130  interrupted"):
        assert code in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself(name, capsys):
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"usage: watcher {name}" in shown and COMMANDS[name] in shown.replace("\n", " ")
    for flag in ("--format", "--data-dir", "--no-color", "--quiet"):
        assert flag in shown
    parser = argparse.ArgumentParser(allow_abbrev=False)
    load(name).add_arguments(parser)
    undocumented = [action.dest for action in parser._actions if not action.help]
    assert not undocumented


@pytest.mark.parametrize("words", [["--version"], ["runs", "--version"]])
def test_the_version_is_known_before_and_after_the_command(words, capsys):
    assert main(words) == 0
    assert capsys.readouterr().out == f"watcherml {watcherml.__version__}\n"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--data-dir"],
        ["--nonsense"],
        ["nonsense"],
        ["runs", "--nonsense"],
        ["runs", "extra"],
        ["runs", "--limit", "0"],
        ["runs", "--limit", "many"],
        ["runs", "--status", "sleeping"],
        ["runs", "--format", "xml"],
        ["runs", "--form", "json"],
        ["inspect"],
        ["failures", "--format", "markdown"],
        ["recoveries", "--verified", "--status", "stopped"],
        ["recoveries", "--status", "won"],
        ["recover"],
        ["recover", "RUN"],
        ["recover", "RUN", "--plan", "plan.json"],
        ["recover", "--plan", "missing.json"],
        ["recover", "--plan", "p.json", "--save-plan", "q.json"],
        ["recover", "RUN", "--entrypoint", "ent:train", "--authorize", "batch-1"],
        ["recover", "RUN", "--entrypoint", "ent:train", "--campaign-id", "../outside"],
        ["recover", "RUN", "--entrypoint", "ent:train", "--trials-root", "/elsewhere"],
        ["recover", "RUN", "--entrypoint", "ent:train", "--metric", "loss"],
        ["recover", "RUN", "--entrypoint", "ent:train", "--automatic-only", "--allow-approval-required"],
        ["prepare-recovery", "RUN"],
        ["prepare-recovery", "RUN", "--entrypoint", "ent:train", "--capabilities", "missing.json"],
        ["stop"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2_and_says_what_is_wrong(words, storage, capsys):
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("watcher: ") and "Traceback" not in said.err
    assert not storage.exists


@pytest.mark.parametrize(
    "flags",
    [
        "--entrypoint ent:train",
        "--working-directory sub",
        "--metric loss:minimize:1:1",
        "--minimum-progress-steps 5",
        "--confirmation-runs 1",
        "--max-peak-vram-gib 4",
        "--progress-metric steps",
        "--no-control",
        "--git-commit abc",
        "--max-trials 4",
        "--termination-grace 1",
        "--max-proposals 3",
        "--automatic-only",
        "--allow-high-risk",
        "--capabilities c.json",
    ],
)
def test_what_a_sealed_plan_has_settled_cannot_be_given_beside_it(flags, storage, capsys):
    assert main(["recover", "--plan", "plan.json", *flags.split()]) == 2
    said = capsys.readouterr().err
    assert "the sealed plan has settled" in said and f"got: {flags.split()[0]}\n" in said


def test_a_misspelt_command_is_answered_with_the_nearest(capsys):
    assert main(["recoverys"]) == 2
    assert "Did you mean `watcher recovery`?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "nobody"],
        ["recovery", "nobody"],
        ["recovery", "nobody", "--watch"],
        ["stop", "nobody"],
        ["resume", "nobody"],
        ["prepare-recovery", "nobody", "--entrypoint", "ent:train"],
        ["recover", "nobody", "--entrypoint", "ent:train", "--yes"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("store", ["no store", "a store"])
def test_an_unknown_id_ends_with_3(words, store, storage, capsys):
    if store == "a store":
        storage.create()
    assert main(words) == 3
    said = capsys.readouterr()
    assert "'nobody'" in said.err and said.err.count("\n") <= 4
    assert storage.exists == (store == "a store")


def test_a_successful_run_has_nothing_to_recover(recorded, capsys):
    assert main(["recover", recorded[0], "--entrypoint", "ent:train", "--yes", "--minimum-progress-steps", "5"]) == 3
    assert "Only a failed run" in capsys.readouterr().err


# -- global options and formats ----------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [True, False])
def test_the_data_dir_counts_on_either_side_of_the_command(before, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WATCHERML_DIR", str(tmp_path / "elsewhere"))
    where = ["--data-dir", str(tmp_path / "mine")]
    assert main([*where, "init"] if before else ["init", *where]) == 0
    assert (tmp_path / "mine" / "watcherml.db").is_file() and not (tmp_path / "elsewhere").exists()
    assert main(["--data-dir=" + where[1], "runs"]) == 0
    assert "No runs" in capsys.readouterr().out


def test_flags_before_the_command_stay_when_the_command_has_its_own(recorded, tmp_path, capsys):
    target = str(tmp_path / "runs.txt")
    assert main(["--quiet", "--no-color", "runs", "--output", target]) == 0
    assert capsys.readouterr().out == ""
    assert main(["runs", "--output", target]) == 0
    assert capsys.readouterr().out == f"Wrote {target}.\n"


def test_the_last_data_dir_wins(tmp_path, capsys):
    assert main(["--data-dir", str(tmp_path / "one"), "init", "--data-dir", str(tmp_path / "two")]) == 0
    assert (tmp_path / "two").is_dir() and not (tmp_path / "one").exists()


def test_init_creates_a_store_once(storage, capsys):
    assert main(["init", "--format", "json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(["init", "--format", "json"]) == 0
    second = json.loads(capsys.readouterr().out)
    assert (first["created"], second["created"]) == (True, False)
    assert first["path"] == str(storage.path) == second["path"]


@pytest.mark.parametrize("command", ["runs", "failures", "recoveries"])
def test_without_a_store_lists_are_empty_and_nothing_is_created(command, storage, capsys):
    assert main([command]) == 0 and main([command, "--format", "json"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("No ") and said.err == ""
    assert not storage.exists and not storage.path.exists()


@pytest.mark.parametrize("command", ["runs", "failures", "inspect good", "inspect bad", "recoveries", "init"])
def test_json_is_one_document_and_nothing_else(command, recorded, capsys):
    names = {"good": recorded[0], "bad": recorded[1]}
    assert main([names.get(word, word) for word in command.split()] + ["--format", "json"]) == 0
    said = capsys.readouterr()
    document = json.loads(said.out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert document["kind"] and said.err == ""


def test_lists_are_filtered(recorded, storage, capsys):
    good, bad = recorded

    def listed(*words):
        assert main([*words, "--format", "json"]) == 0
        document = json.loads(capsys.readouterr().out)
        return [row["run_id"] for row in document[document["kind"]]]

    assert listed("runs") == [bad, good]
    assert listed("runs", "--status", "failed") == [bad] == listed("runs", "--limit", "1")
    assert listed("runs", "--project", "other") == [] == listed("failures", "--project", "other")
    assert listed("failures", "--unresolved") == [bad]


def test_a_failed_run_is_shown_as_its_capsule_in_every_format(recorded, capsys, tmp_path):
    good, bad = recorded
    assert main(["inspect", bad]) == 0
    text = capsys.readouterr().out
    assert "CUDA ran out of memory" in text.splitlines()[0] and "Diagnosis" in text
    assert main(["inspect", bad, "--format", "markdown"]) == 0
    assert capsys.readouterr().out.startswith("# CUDA ran out of memory")
    assert main(["inspect", bad, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["run"]["run_id"] == bad
    assert document["failure"]["capsule"]["run_id"] == bad and document["failure"]["shortfall_bytes"] == 17 * 2**20
    assert main(["inspect", good]) == 0
    assert "finished" in capsys.readouterr().out.splitlines()[0]


def test_output_goes_to_the_file_whole_and_not_to_the_terminal(recorded, tmp_path, capsys):
    target = tmp_path / "failure.json"
    assert main(["inspect", recorded[1], "--format", "json", "--output", str(target), "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert json.loads(target.read_text())["run"]["run_id"] == recorded[1]
    assert main(["inspect", recorded[1], "--output", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert "--output" in said.err and said.out == "" and len(list(tmp_path.glob("*.tmp"))) == 0


# -- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        (["inspect", "nobody", "--format", "json"], "not_found", 3),
        (["runs", "--format=json", "--limit", "x"], "usage", 2),
        (["nonsense", "--format", "json"], "usage", 2),
    ],
)
def test_with_json_an_error_is_one_json_line_on_standard_error(words, code, exit_code, storage, capsys):
    storage.create()
    assert main(words) == exit_code
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    document = json.loads(said.err)
    assert (document["kind"], document["exit_code"], document["error"]["code"]) == ("error", exit_code, code)


@pytest.mark.parametrize("command", ["runs", "failures", "init", "inspect x", "recoveries"])
def test_a_foreign_file_is_named_and_left_alone(command, storage, capsys):
    storage.path.mkdir()
    database = storage.path / "watcherml.db"
    database.write_bytes(b"not a database, but somebody's letter" * 100)
    before = database.read_bytes()
    assert main(command.split()) == 1
    said = capsys.readouterr().err
    assert "cannot be read as a store" in said and "next:" in said and database.read_bytes() == before


def test_an_unexpected_error_is_a_sentence_and_a_traceback_only_when_asked(storage, monkeypatch, capsys):
    def broken(self):
        raise RuntimeError("wires\ncrossed")

    monkeypatch.setattr("watcherml.store.storage.Storage.settle", broken)
    storage.create()
    monkeypatch.delenv("WATCHERML_DEBUG", raising=False)
    assert main(["runs"]) == 1
    said = capsys.readouterr().err
    assert "unexpected RuntimeError: wires\\ncrossed" in said and "Traceback" not in said
    monkeypatch.setenv("WATCHERML_DEBUG", "1")
    assert main(["runs"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_ends_with_130(storage, monkeypatch, capsys):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr("watcherml.store.storage.Storage.settle", interrupted)
    storage.create()
    assert main(["runs"]) == 130
    assert "Interrupted" in capsys.readouterr().err


# -- what names can do -------------------------------------------------------------------------------------------


@pytest.fixture
def hostile(storage):
    """A failed run whose project, configuration, metric and message try to break out of a line."""
    run = watcherml.Run(HOSTILE, {HOSTILE: HOSTILE, "batch_size": 4}, storage, quiet=True)
    with pytest.raises(ValueError), run:
        raise ValueError(HOSTILE)
    return run.run_id


@pytest.mark.parametrize("command", ["runs", "failures", "inspect RUN", "inspect RUN --format markdown"])
def test_a_hostile_name_stays_on_its_line_and_moves_no_cursor(command, hostile, capsys):
    assert main([hostile if word == "RUN" else word for word in command.split()]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "\u202e" not in shown
    # A traceback in its fence keeps its lines; outside, a line feed in a name is shown as one.
    outside = "".join(shown.split("```")[::2])
    assert not any(line.startswith("b") for line in outside.splitlines()) and "a\\nb" in outside.replace("\\\\", "\\")
    if command in ("runs", "failures"):
        assert len(shown.splitlines()) == 2 and "a\\nb\\x1b" in shown
    if "markdown" in command:
        assert "<script>" not in outside and "&lt;script&gt;" in outside


def test_a_hostile_id_in_an_error_stays_on_its_line(storage, capsys):
    storage.create()
    assert main(["inspect", HOSTILE]) == 3
    said = capsys.readouterr().err
    assert "\x1b" not in said and "\u202e" not in said and len(said.splitlines()) == 2


# -- streams ------------------------------------------------------------------------------------------------------


def test_colour_is_for_terminals_that_want_it(recorded, on_a_terminal):
    assert "\x1b[" not in watcher("runs").stdout
    code, shown = on_a_terminal("runs")
    assert code == 0 and "\x1b[31mfailed" in shown
    unwanted = [(["--no-color", "runs"], {}), (["runs"], {"NO_COLOR": "1"}), (["runs"], {"TERM": "dumb"})]
    for words, environment in unwanted:
        code, shown = on_a_terminal(*words, **environment)
        assert code == 0 and "failed" in shown and "\x1b[" not in shown, (words, environment)
    assert "\x1b[31m" in on_a_terminal("runs", NO_COLOR="")[1]


def test_a_reader_that_has_gone_is_no_error(recorded):
    code = "import sys; from watcherml.cli.main import main; sys.exit(main(sys.argv[1:]))"
    for words in (["runs"], ["runs", "--format", "json"], ["--help"], ["recover", "--help"]):
        process = subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.close()
        said = process.stderr.read().decode()
        process.stderr.close()
        assert (process.wait(60), said) == (0, ""), words


def test_an_ascii_terminal_is_enough(recorded):
    done = watcher("inspect", recorded[1], env={**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    assert done.returncode == 0 and "CUDA ran out of memory" in done.stdout and done.stderr == ""


def test_listing_loads_nothing_heavy(recorded, storage):
    code = (
        "import sys, json, watcherml.cli.main as m; m.main(['runs', '--quiet']);"
        "print(json.dumps([n for n in ('torch', 'pandas', 'numpy', 'IPython', 'watcherml.campaign.supervisor')"
        " if n in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"
