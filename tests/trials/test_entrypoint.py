"""Checking an entrypoint in a child process."""

import os
import sys

import pytest

from watcherml import TrainingEntrypoint, validate_entrypoint
from watcherml.errors import InvalidEntrypoint
from watcherml.trials.check_entrypoint import check_entrypoint

FILES = {
    "good.py": "import helper\ndef train(config, max_steps=None): ...",
    "helper.py": "X = 1",
    "no_max.py": "def train(config): ...",
    "extra.py": "def train(config, max_steps, data): ...",
    "optional.py": "def train(config, max_steps=None, *, log=None, **more): ...",
    "positional.py": "def train(config, max_steps, /): ...",
    "lam.py": "train = lambda config, max_steps: None",
    "inner.py": "def make():\n    def train(config, max_steps): ...\n    return train\ntrain = make()",
    "klass.py": "class train:\n    def __init__(self, config, max_steps): ...",
    "asyn.py": "async def train(config, max_steps): ...",
    "gen.py": "def train(config, max_steps):\n    yield 1",
    "broken.py": "import no_such_package_here\ndef train(config, max_steps): ...",
    "syntax.py": "def train(config, max_steps:",
    "exits.py": "import os; os._exit(3)",
    "slow.py": "import time; time.sleep(60)",
    "quits.py": "import sys\nsys.exit(0)",
    "parses.py": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr')\np.parse_args()",
    "reads.py": "import helper\nopen('nothing.csv')",
    "lays.py": "import inner_package.part\ndef train(config, max_steps): ...",
    "keywords.py": "def train(**options): ...",
    "noisy.py": "print('{\"parameters\": []}')\ndef train(config, max_steps): ...",
}


@pytest.fixture
def project(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_good_entrypoint_is_described_and_not_imported_here(project):
    found = validate_entrypoint(TrainingEntrypoint("good:train"), project_root=project, require_max_steps=True)
    assert found.parameters == ("config", "max_steps")
    assert set(found.code.files) == {"good.py", "helper.py"}
    assert "good" not in sys.modules and "helper" not in sys.modules


@pytest.mark.parametrize("target", ["optional:train", "noisy:train"])
def test_these_are_fine_too(project, target):
    assert validate_entrypoint(target, project).parameters[:2] == ("config", "max_steps")


@pytest.mark.parametrize(
    ("target", "word"),
    [
        ("no_max:train", "max_steps"),
        ("extra:train", "data"),
        ("positional:train", "config"),
        ("lam:train", "named top-level function"),
        ("inner:train", "named top-level function"),
        ("klass:train", "top-level function"),
        ("asyn:train", "async"),
        ("gen:train", "async or generator"),
        ("nowhere:train", "importable module nowhere"),
        ("good:fit", "Functions there: train"),
    ],
)
def test_what_cannot_serve_is_refused_with_the_reason(project, target, word):
    with pytest.raises(InvalidEntrypoint) as refused:
        validate_entrypoint(target, project)
    assert word in str(refused.value)


@pytest.mark.parametrize(
    ("target", "got", "remedy"),
    [
        ("broken:train", "No module named 'no_such_package_here' (at broken.py, line 1)", "Install it for "),
        ("syntax:train", "SyntaxError: '(' was never closed (at syntax.py, line 1)", "Mend that line."),
        ("quits:train", "sys.exit(0) while it was imported (at quits.py, line 2)", "__main__"),
        ("parses:train", "sys.exit(2) while it was imported (at parses.py, line 4)", "__main__"),
        ("reads:train", "No such file or directory: 'nothing.csv' (at reads.py, line 2)", "--working-directory"),
        ("lays:train", "No module named 'inner_package' (at lays.py, line 1)", "inner_package is in the folder src"),
        ("exits:train", "exit code 3", "import watcherml, exits"),
        ("inner_package.part:train", "none of that name", "inner_package is in the folder src"),
        ("keywords:train", "(**options)", "def train(config, max_steps=None)"),
    ],
)
def test_a_refusal_names_the_error_its_line_and_the_remedy_and_shows_no_traceback(project, target, got, remedy):
    package = project / "src" / "inner_package"
    package.mkdir(parents=True)
    (package / "part.py").write_text("def train(config, max_steps): ...")
    with pytest.raises(InvalidEntrypoint) as refused:
        validate_entrypoint(target, project)
    assert got in refused.value.got
    assert remedy in refused.value.remedy
    assert "Traceback" not in str(refused.value) and "check_entrypoint.py" not in str(refused.value)


def test_a_module_that_does_not_finish_importing_is_refused(project):
    with pytest.raises(InvalidEntrypoint, match="within 1 s"):
        check_entrypoint(TrainingEntrypoint("slow:train"), project, timeout_seconds=1.0)


def test_an_interpreter_that_is_not_there_is_named(project):
    with pytest.raises(InvalidEntrypoint, match="python_executable"):
        check_entrypoint(TrainingEntrypoint("good:train"), project, python=str(project / "nothing"))


def test_a_missing_root_is_named(tmp_path):
    with pytest.raises(InvalidEntrypoint, match="project_root"):
        validate_entrypoint("good:train", tmp_path / "nothing")
    with pytest.raises(InvalidEntrypoint, match="working_directory"):
        validate_entrypoint(TrainingEntrypoint("good:train", "nothing"), tmp_path)


def test_code_that_lies_outside_the_project_root_is_refused(project, monkeypatch):
    elsewhere = project / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("PYTHONPATH", f"{project}:{os.environ.get('PYTHONPATH', '')}")
    with pytest.raises(InvalidEntrypoint, match="folder that holds optional"):
        validate_entrypoint("optional:train", elsewhere)
