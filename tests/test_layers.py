"""The import table: a package imports lower layers only, and no module takes part in a cycle."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "watcherml"

# Each package with the packages it may import; its own modules are always allowed.
VALUES_OF_FORENSICS = {"forensics.capsule", "forensics.evidence"}
ALLOWED = {
    "errors": set(),
    "platform": {"errors"},
    "sealed": {"errors"},
    "store": {"errors", "platform", "sealed"},
    "simulated": {"errors", "platform", "sealed"},
    "recorder": {"errors", "platform", "sealed", "store", "simulated"},
    "forensics": {"errors", "platform", "sealed", "store", "simulated", "recorder"},
    "contract": {"errors", "sealed"},
    "protocol": {"errors", "sealed", "contract"},
    "planning": {"errors", "sealed", "contract", "protocol"} | VALUES_OF_FORENSICS,
    "trials": {
        "errors", "platform", "sealed", "store", "simulated", "recorder", "forensics", "contract", "protocol", "",
    },
    "verdict": {"errors", "sealed", "contract", "protocol"},
    "campaign": {
        "errors", "platform", "sealed", "store", "simulated", "recorder", "forensics", "contract", "protocol",
        "planning", "trials", "verdict",
    },
    "report": {"errors", "sealed", "contract", "protocol", "forensics.capsule", "forensics.evidence"},
    "api": {
        "errors", "platform", "sealed", "store", "simulated", "recorder", "forensics", "contract", "protocol",
        "planning", "trials", "verdict", "campaign",
    },
    "frames": {"errors", "sealed", "store"},
    "options": {"errors", "sealed", "contract"},
    "notebook": {
        "errors", "platform", "sealed", "store", "simulated", "recorder", "forensics", "contract", "protocol",
        "campaign", "api", "frames", "options", "report", "",
    },
    "cli": {
        "errors", "platform", "sealed", "store", "simulated", "recorder", "forensics", "contract", "protocol",
        "campaign", "api", "frames", "options", "report", "",
    },
    # Beside the surfaces: callbacks record through api and recorder, sinks read the store; nothing imports them.
    "adapters": {"errors", "platform", "store", "recorder", "api"},
    # Found by its name (api.ui), so that no surface imports another.
    "ui": {"errors", "sealed", "store", "contract", "protocol", "api", "report", ""} | VALUES_OF_FORENSICS,
    "jupyter": {"errors", "api", "frames", "options", "report"},
    "__main__": {"cli"},
}  # fmt: skip

# What a package must not import anywhere, even from the standard library; the recorder only not at module level.
FORBIDDEN = {
    "sealed": {"os", "time", "random", "sqlite3", "subprocess", "secrets", "threading", "datetime"},
    "contract": {"os", "time", "random", "sqlite3", "subprocess", "secrets", "threading"},
    "protocol": {"os", "time", "random", "sqlite3", "subprocess", "secrets", "threading", "pathlib"},
    "planning": {"os", "time", "random", "sqlite3", "subprocess", "secrets", "threading", "pathlib"},
    "verdict": {"os", "time", "random", "sqlite3", "subprocess", "secrets", "threading", "pathlib"},
    "recorder": {"torch", "pandas", "IPython"},
    "report": {"sqlite3", "subprocess", "IPython", "starlette", "time"},
}


def modules():
    return sorted(path for path in PACKAGE.rglob("*.py") if "labextension" not in path.parts)


def dotted(path):
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path, top_level_only=False):
    """Yield the dotted names a module imports, ``from x import y`` as x.y where that is a module."""
    tree = ast.parse(path.read_text("utf-8"))
    guarded = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for node in ast.walk(block)
    }
    inner = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in guarded or (top_level_only and id(node) in inner):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                as_module = ROOT / Path(*name.split("."))
                is_module = as_module.with_suffix(".py").exists() or (as_module / "__init__.py").exists()
                yield name if is_module else node.module


def test_every_import_goes_down_the_table():
    wrong = []
    for path in modules():
        name = dotted(path)
        if name == "watcherml":
            continue  # names only, loaded on first use
        package = name.split(".")[1]
        assert package in ALLOWED, f"{name}: give the package a row in the table"
        for target in imports(path):
            if target.split(".")[0] != "watcherml":
                continue
            inside = target.split(".", 1)[1] if "." in target else ""
            other = inside.split(".")[0]
            if other != package and other not in ALLOWED[package] and inside not in ALLOWED[package]:
                wrong.append(f"{name} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_forbidden_modules_stay_out():
    wrong = [
        f"{dotted(path)} imports {target}"
        for path in modules()
        if dotted(path) != "watcherml"
        for target in imports(path, top_level_only="recorder" in path.parts)
        if target.split(".")[0] in FORBIDDEN.get(dotted(path).split(".")[1], ())
    ]
    assert not wrong, "\n".join(wrong)


def test_optional_packages_are_imported_where_they_are_used():
    optional = {"torch", "numpy", "pandas", "IPython", "ipywidgets", "pynvml", "starlette", "uvicorn", "jinja2",
                "tornado", "jupyter_server", "transformers", "lightning", "pytorch_lightning", "mlflow",
                "wandb"}  # fmt: skip
    homes = ("watcherml.notebook", "watcherml.ui", "watcherml.jupyter.handlers", "watcherml.simulated",
             "watcherml.cli.demo_char_gpt")  # fmt: skip
    homes += tuple(f"watcherml.adapters.{name}" for name in ("transformers", "lightning", "mlflow", "wandb"))
    wrong = [
        f"{dotted(path)} imports {target} at module level"
        for path in modules()
        if not dotted(path).startswith(homes)
        for target in imports(path, top_level_only=True)
        if target.split(".")[0] in optional
    ]
    assert not wrong, "\n".join(wrong)


def test_no_module_takes_part_in_an_import_cycle():
    graph = {dotted(path): {one for one in imports(path) if one.startswith("watcherml.")} for path in modules()}
    done, stack = set(), []

    def visit(name):
        if name in stack:
            raise AssertionError("cycle: " + " -> ".join([*stack[stack.index(name) :], name]))
        if name in done or name not in graph:
            return
        stack.append(name)
        for target in sorted(graph[name]):
            visit(target)
        stack.pop()
        done.add(name)

    for name in sorted(graph):
        if name != "watcherml":
            visit(name)


def test_importing_the_package_loads_nothing_optional():
    code = (
        "import sys, json, watcherml\n"
        "seen = sorted(m for m in ('torch', 'pandas', 'IPython', 'numpy', 'sqlite3', 'psutil') if m in sys.modules)\n"
        "watcherml.init, watcherml.Run, watcherml.MetricGuard, watcherml.recover_from_oom\n"
        "later = sorted(m for m in ('torch', 'pandas', 'IPython', 'numpy') if m in sys.modules)\n"
        "print(json.dumps([seen, later]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert json.loads(done.stdout) == [[], []]


@pytest.mark.parametrize("kind", ["verdict", "protocol", "planning", "contract", "sealed"])
def test_the_pure_core_opens_nothing(kind):
    """No call of open, exec or eval in the layers that decide."""
    for path in (PACKAGE / kind).rglob("*.py"):
        calls = {
            node.func.id
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not calls & {"open", "exec", "eval", "print", "input", "__import__"}, path
