"""README, the command line, the magics and the public names say the same."""

import re
import shlex
from pathlib import Path

import pytest

import watcherml
from watcherml import errors

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def commands():
    from watcherml.cli.commands import COMMANDS

    return list(COMMANDS)


def code_blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_readme_names_every_command_and_no_other():
    named = set(re.findall(r"`watcher ([a-z][a-z-]*)[^`]*`", README))
    assert named == set(commands())


def test_readme_names_every_magic_and_no_other():
    pytest.importorskip("IPython")
    from watcherml.notebook.magics import CELL_COMMANDS, COMMANDS

    named = set(re.findall(r"(?<!%)%watcher ([a-z][a-z-]*)", README))
    assert named == set(COMMANDS)
    assert set(re.findall(r"%%watcher ([a-z][a-z-]*)", README)) == set(CELL_COMMANDS)


def test_readme_names_every_public_symbol_and_all_of_them_load():
    table = README.split("## Python API")[1].split("\n## ")[0]
    named = set(re.findall(r"`([A-Za-z_]+)`", table))
    methods = {"get_run", "get_capsule", "list_runs", "get_metrics"}
    assert named - methods == set(watcherml.__all__)
    for name in watcherml.__all__:
        if name != "simulated_device":
            assert getattr(watcherml, name) is not None
    for method in methods:
        assert callable(getattr(watcherml.Storage, method))
    with pytest.raises(AttributeError):
        watcherml.nothing_of_that_name  # noqa: B018


def test_the_frames_in_readme_exist():
    sentence = next(line for line in README.splitlines() if line.startswith("Lists are also DataFrames"))
    names = set(re.findall(r"(\w+)\(\)", sentence))
    public = {name for name, value in vars(watcherml.frames).items() if callable(value) and not name.startswith("_")}
    assert names == {name for name in public if getattr(watcherml.frames, name).__module__ == "watcherml.frames"}


def test_exit_codes_in_readme_are_the_codes_of_the_errors():
    table = README.split("| exit code |")[1].split("\n\n")[0]
    named = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    raised = {kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "exit_code")}
    assert named == raised | {0, 4, 130}


def test_statuses_in_readme_are_the_statuses_of_a_verdict():
    from typing import get_args

    from watcherml.protocol.verdict import Status

    table = README.split("| status |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == list(get_args(Status))


def test_the_flags_in_readme_exist():
    from watcherml.cli.main import command_parser, root_parser
    from watcherml.notebook import magics
    from watcherml.notebook.command import parser_of

    parsers = [root_parser(), *(command_parser(name) for name in commands())]
    parsers += [parser_of(name, one) for name, one in magics.COMMANDS.items()]
    parsers += [one.parser() for one in magics.CELL_COMMANDS.values()]
    known = set(re.findall(r"--[a-z][a-z-]+", "\n".join(one.format_help() for one in parsers)))
    mine = "\n".join(line for line in README.splitlines() if "pip install" not in line and "apt-get" not in line)
    used = set(re.findall(r"--[a-z][a-z-]+", mine)) - {"--help"}
    assert used <= known, used - known


def test_the_gate_runs_the_test_command_of_readme():
    tests = [line.split("&& ")[-1] for block in code_blocks("bash") for line in block.splitlines() if "pytest" in line]
    assert len(tests) == 1
    assert tests[0] in (ROOT / ".ci" / "run").read_text()
    assert tests[0] in (ROOT / "CONTRIBUTING.md").read_text()
    assert shlex.split(tests[0])[0] == ".venv/bin/python"


def test_nobody_is_told_to_install_the_bare_name():
    texts = [README, *(path.read_text("utf-8") for path in (ROOT / "watcherml").rglob("*.py"))]
    texts += [path.read_text("utf-8") for path in (ROOT / "notebooks").rglob("*.ipynb")]
    for text in texts:
        assert not re.search(r"pip install (-\w+ )*[\"']?watcherml", text)
    project = (ROOT / "pyproject.toml").read_text()
    assert not re.search(r"[\"']watcherml[\[\"'>=]", project.split("[project.scripts]")[0].split("dependencies = [")[1])


def test_the_version_is_one():
    assert f'version = "{watcherml.__version__}"' in (ROOT / "pyproject.toml").read_text()
    assert f"## {watcherml.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_capsules_evidence_and_classes_are_those_of_the_description():
    from watcherml.forensics.evidence import NAMES

    assert list(NAMES) == [f"EV-{number}" for number in range(1, 12)]
    assert watcherml.CAPSULE_SCHEMA_VERSION == "2.0"
