"""What README and its neighbours show can be typed as it stands: commands, flags, code, links and extras exist."""

import ast
import inspect
import json
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

import watcherml
from watcherml.contract import limits

ROOT = Path(__file__).resolve().parents[1]
PAGES = {name: (ROOT / name).read_text("utf-8") for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")}
README = PAGES["README.md"]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# Flags that every command has are told once, above the table.
EVERYWHERE = {"--help", "--version", "--data-dir", "--no-color", "--quiet", "--format", "--output"}


def blocks(*languages):
    return [body for text in PAGES.values() for language, body in FENCE.findall(text) if language in languages]


def flags(parser):
    return {name for action in parser._actions for name in action.option_strings if name.startswith("--")}


def rows(pattern):
    """The rows of README's tables whose first cell names commands: the names, and the flags of the whole row."""
    for line in README.splitlines():
        names = re.findall(pattern, line.split("|")[1]) if line.startswith("| `") else []
        if names:
            yield names, set(re.findall(r"--[a-z][a-z-]+", line))


def section(title):
    return README.split(f"### {title}\n")[1].split("\n##")[0]


# -- commands --------------------------------------------------------------------------------------------------------


def typed_commands():
    """Every `watcher ...` in a fenced block, as words: continued lines joined, chains taken apart."""
    for body in blocks("bash", ""):
        for line in body.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|;|\|", line):
                words = shlex.split(part, comments=True)
                if words and Path(words[0]).name in ("watcher", "watcherml"):
                    yield words[1:]


@pytest.mark.parametrize("words", list(typed_commands()), ids=" ".join)
def test_a_command_in_a_block_parses(words):
    from watcherml.cli.main import _split, command_parser

    front, name, rest = _split(words)
    command_parser(name).parse_args([*front, *rest])


def test_the_blocks_hold_commands_to_check():
    assert len(list(typed_commands())) >= 4


def test_the_flags_in_the_row_of_a_command_are_its_own_and_every_flag_is_told():
    from watcherml.cli.commands import COMMANDS
    from watcherml.cli.main import command_parser

    shared = set(re.findall(r"--[a-z][a-z-]+", section("The flags of a recovery")))
    told = {name: set() for name in COMMANDS}
    for names, found in rows(r"`watcher ([a-z-]+)"):
        for name in names:
            assert found <= flags(command_parser(name)), (name, found - flags(command_parser(name)))
            told[name] |= found
    for name in ("prepare-recovery", "recover"):
        told[name] |= shared
    approvals = set(re.findall(r"--[a-z][a-z-]+", README.split("\n`--yes` confirms")[1].split("\n\n")[0])) | {"--yes"}
    told["recover"] |= approvals
    told["ui"] |= {"--host", "--port"}
    untold = {name: flags(command_parser(name)) - EVERYWHERE - told[name] for name in COMMANDS}
    deeds = {"resolve", "export", "import", "pack", "delete", "prune", "ui"}
    assert {name for name in COMMANDS if "--output" not in flags(command_parser(name))} == deeds
    assert not {name: missing for name, missing in untold.items() if missing}


def test_the_flags_in_the_row_of_a_magic_are_its_own_and_every_flag_is_told():
    pytest.importorskip("IPython")
    from watcherml.cli.commands import COMMANDS as LISTS
    from watcherml.cli.main import command_parser
    from watcherml.notebook import magics
    from watcherml.notebook.command import parser_of

    recovery = set(re.findall(r"--[a-z][a-z-]+", section("The flags of a recovery").split("`watcher recover` also")[0]))
    parsers = {f"%{name}": parser_of(name, one) for name, one in magics.COMMANDS.items()}
    parsers |= {f"%%{name}": one.parser() for name, one in magics.CELL_COMMANDS.items()}
    told = {name: set(recovery) for name in parsers}
    for names, found in rows(r"`(%%?watcher [a-z-]+)"):
        for name in (one.replace("watcher ", "") for one in names):
            # The line magic hands what follows it to the parser of the cell magic.
            mine = flags(parsers["%%recover" if name == "%recover" else name]) | {"--entrypoint"}
            assert found <= mine, (name, found - mine)
            told[name] |= found
    for name in ("runs", "failures", "recoveries"):  # README: with the flags of the commands of that name
        assert name in LISTS and flags(parsers[f"%{name}"]) <= flags(command_parser(name))
        told[f"%{name}"] |= flags(command_parser(name))
    everywhere = {"--help", "--approved-by", "--yes"}
    untold = {name: flags(parser) - told[name] - everywhere for name, parser in parsers.items()}
    assert not {name: missing for name, missing in untold.items() if missing}


def test_the_defaults_in_the_table_of_a_recovery_are_those_that_act():
    table = section("The flags of a recovery")
    budget = watcherml.RecoveryBudget().resolve(
        confirmation_runs=limits.DEFAULT_CONFIRMATIONS, minimum_progress_steps=1_000, control=True
    )
    for words, value in {
        "at most 10: {}": budget.max_trials, "control and probes: {}": budget.max_probe_trials,
        "full trials: {}": budget.max_full_trials, "steps of a probe: {}": budget.probe_steps,
        "seconds of a trial: {}": budget.trial_timeout_seconds, "of all: {}": budget.campaign_timeout_seconds,
        "SIGKILL: {}": budget.termination_grace_seconds, "probes at once: {}": budget.parallel_probes,
        "confirmations, 1 to 3: {}": limits.DEFAULT_CONFIRMATIONS, "proposals, 1 to 32: {}": limits.DEFAULT_PROPOSALS,
    }.items():  # fmt: skip
        assert re.search(re.escape(words.format(f"{value:g}")) + r"\b", table), words
    assert (limits.MAX_TRIALS, limits.MAX_CONFIRMATIONS, limits.MAX_PROPOSALS) == (10, 3, 32)
    assert budget.max_gpu_seconds is None and "GPU seconds in all: no limit" in table


def test_every_variable_that_a_person_may_set_is_in_readme():
    inner = {"WATCHERML_TRIAL", "WATCHERML_GUARD"}  # set by us, for our own processes
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "watcherml").rglob("*.py"))
    read = set(re.findall(r"[\"'](WATCHERML_[A-Z_]+)[\"']", code)) - inner
    assert read and read <= set(re.findall(r"WATCHERML_[A-Z_]+", README)), read


# -- code ------------------------------------------------------------------------------------------------------------


def python_blocks():
    for body in blocks("python"):
        lines = body.splitlines()
        cell = lines[0].startswith("%%")
        yield "\n".join("" if line.startswith("%") else line for line in lines), cell


def name_of(node):
    """A dotted name as text, None for anything else."""
    if isinstance(node, ast.Attribute):
        below = name_of(node.value)
        return below and f"{below}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else None


def places(tree):
    """What the names of a block stand for: modules and names of ours that it imports, `run` and `result`."""
    known = {"watcherml": watcherml, "run": watcherml.Run, "result": watcherml.RecoveryResult}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("watcherml.adapters"):
            # Importing it would import the library that it is for, which takes seconds.
            body = ast.parse((ROOT / f"{node.module.replace('.', '/')}.py").read_text("utf-8")).body
            there = {one.name for one in body if isinstance(one, (ast.ClassDef, ast.FunctionDef))}
            there |= {one.name for part in body if isinstance(part, ast.ImportFrom) for one in part.names}
            assert {one.name for one in node.names} <= there, node.module
        elif isinstance(node, ast.ImportFrom) and node.module.startswith("watcherml"):
            module = import_module(node.module)
            known.update({one.name: getattr(module, one.name) for one in node.names})
    return known


def found(known, name):
    first, *rest = name.split(".")
    if first not in known:
        return None
    value = known[first]
    for part in rest:
        if isinstance(value, type) and not hasattr(value, part):
            # A field has no value on the class.
            assert any(f"self.{part} =" in inspect.getsource(one) or part in one.__annotations__
                       for one in value.__mro__[:-1]), name  # fmt: skip
            return None
        value = getattr(value, part)
    return value


@pytest.mark.parametrize(("code", "cell"), list(python_blocks()))
def test_a_python_block_compiles_and_calls_what_exists_as_it_is_declared(code, cell):
    tree = ast.parse(code)
    known = places(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (name := name_of(node)):
            found(known, name)
        if isinstance(node, ast.Call) and (name := name_of(node.func)) and (called := found(known, name)):
            given = [object()] * len(node.args), {one.arg: object() for one in node.keywords if one.arg}
            bound = [object()] if name.startswith("run.") else []
            inspect.signature(called).bind_partial(*bound, *given[0], **given[1])


def test_the_code_in_running_text_of_readme_exists():
    public = set(re.findall(r"`watcherml\.([a-z_]+)[(.`]", README))
    assert public and public <= set(watcherml.__all__), public
    assert all(hasattr(watcherml.Run, name) for name in re.findall(r"`run\.([a-z_]+)\(", README))


def test_the_declarations_in_readme_are_read():
    from watcherml.planning.controls_declared import read_declarations

    (body,) = blocks("json")
    assert read_declarations(json.loads(body))


# -- links, files, extras ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_relative_links_and_named_files_exist(page):
    text = FENCE.sub("", PAGES[page])
    for target in re.findall(r"\]\(([^)]+)\)", text):
        file, _, anchor = target.partition("#")
        if not file.startswith("http"):
            assert not file or (ROOT / file).exists(), target
            titles = {re.sub(r"[^\w -]", "", one).strip().lower().replace(" ", "-") for one in
                      re.findall(r"^#+ (.*)$", PAGES.get(file or page, ""), re.MULTILINE)}  # fmt: skip
            assert not anchor or anchor in titles, target
    tops = {path.name for path in (*ROOT.iterdir(), *(ROOT / "watcherml").iterdir())}
    for name in re.findall(r"`([\w.-]+/[\w./*-]*)`", text):
        if name.split("/")[0] in tops and name.split("/")[0] not in ("artifacts", "trials", ".watcherml"):
            homes = [base for base in (ROOT, ROOT / "watcherml") if list(base.glob(name.rstrip("/") + "*"))]
            assert homes, name


def test_every_extra_that_is_named_exists():
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    extras = set(re.findall(r"^(\w+) = \[", project.split("[project.optional-dependencies]")[1].split("\n[")[0], re.M))
    texts = [*PAGES.values(), (ROOT / ".ci" / "run").read_text("utf-8")]
    for folder, ending in (("watcherml", "*.py"), ("watcherml", "*.html"), ("notebooks", "*.ipynb"), ("binder", "*")):
        texts += [path.read_text("utf-8") for path in (ROOT / folder).rglob(ending) if path.is_file()]
    named = {one.strip() for text in texts for group in re.findall(r"(?<=\.)\[([a-z, ]+)\]", text)
             for one in group.split(",")}  # fmt: skip
    assert named and named <= extras, named - extras


def test_the_map_of_the_code_names_every_package():
    table = PAGES["CONTRIBUTING.md"].split("## How the code is laid out")[1].split("\nRules")[0]
    packages = {path.parent.name for path in (ROOT / "watcherml").glob("*/__init__.py")}
    assert packages | {"options"} == set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| \d \|(.*?)\|", table, re.M))))
