"""The shape of the code: short files and functions, docstrings on what is public, one maker of verdicts."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "watcherml"
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50

FILES = sorted(PACKAGE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text("utf-8")) for path in FILES}


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def test_files_are_short():
    long = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in FILES}
    assert not {name: lines for name, lines in long.items() if lines > MAX_FILE_LINES}


def test_functions_are_short():
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for path, tree in TREES.items()
        for node in functions(tree)
        if node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
    ]
    assert not long, "\n".join(long)


def public(tree):
    """Yield the public modules' functions, classes and methods; Protocol members and overloads included."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)) and not inner.name.startswith("_"):
                        yield inner


def test_everything_public_has_a_docstring():
    bare = []
    for path, tree in TREES.items():
        if not ast.get_docstring(tree):
            bare.append(f"{path.relative_to(ROOT)}: the module")
        if path.name.startswith("demo_"):
            continue  # an example of user code
        bare += [f"{path.relative_to(ROOT)}:{n.lineno} {n.name}" for n in public(tree) if not ast.get_docstring(n)]
    assert not bare, "\n".join(bare)


@pytest.mark.parametrize(("name", "home"), [("Verdict", "verdict/verify.py"), ("Ranking", "verdict/rank.py")])
def test_only_its_own_module_makes_a(name, home):
    makers = {
        path.relative_to(PACKAGE).as_posix()
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (getattr(node.func, "id", None) == name or getattr(node.func, "attr", None) == name)
    }
    assert makers == {home}


def test_authorizations_are_made_by_planning_only():
    makers = {
        path.relative_to(PACKAGE).as_posix()
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "Authorization"
    }
    assert makers == {"planning/authorize.py"}


def test_the_word_verified_is_set_as_a_status_in_one_place():
    """A literal status "verified" appears outside the verdict only as a value to compare with or a key to show."""
    setters = {
        path.relative_to(PACKAGE).as_posix()
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword)
        and node.arg == "status"
        and isinstance(node.value, ast.Constant)
        and node.value.value == "verified"
    }
    assert setters <= {"verdict/verify.py"}


def test_errors_share_one_tree():
    from watcherml import errors

    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(classes) > 15
    for kind in classes:
        assert issubclass(kind, errors.WatcherError), kind
        assert f"{kind.__name__}" in errors.__doc__, f"{kind.__name__} is missing from the drawn tree"
        assert kind.code and isinstance(kind.exit_code, int)
    codes = [kind.code for kind in classes]
    assert len(set(codes)) == len(codes)
