"""Releasing failed cells of a real IPython shell: every shape of cell, three traceback modes, after %debug."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from typing import Any

import pytest

SHELL = """
    import gc, io, json, sys, weakref
    from IPython.core.interactiveshell import InteractiveShell
    from watcherml.forensics.release import release_frames

    mode, keep_stack, act = sys.argv[1], sys.argv[2] == "keep", sys.argv[3] == "act"
    shell = InteractiveShell.instance()
    refs, told = [], {}

    class Big:
        def __init__(self):
            refs.append(weakref.ref(self))

    def alive():
        return sum(ref() is not None for ref in refs)

    def after(result):
        if act and result.error_in_exec is not None:
            found = release_frames(result.error_in_exec, shell, keep_stack)
            told["last"] = found.to_data()

    shell.events.register("post_run_cell", after)
    shell.user_ns.update(Big=Big, keep=[])
    NESTED = "def g(x):\\n c = Big()\\n raise RuntimeError('cell failed')\\ndef f():\\n a = Big()\\n g(Big())\\n"
    TRY = NESTED + "try:\\n f()\\nexcept RuntimeError as e:\\n "
    CELLS = {
        "nested": NESTED + "f()",
        "from": NESTED + "def h():\\n b = Big()\\n try:\\n  f()\\n except RuntimeError as e:\\n"
                + "  raise ValueError('outer') from e\\nh()",
        "closure": "def f():\\n a = Big()\\n def g():\\n  b = Big()\\n  raise RuntimeError(str(a))\\n g()\\nf()",
        "class body": "def f():\\n class C:\\n  a = Big()\\n  raise RuntimeError('x')\\nf()",
        "comprehension": NESTED + "def h():\\n return [g(y) for y in [Big(), Big()]]\\nh()",
        "generator": NESTED + "def p():\\n a = Big()\\n yield a\\n f()\\ndef h():\\n for b in p():\\n  pass\\nh()",
        "recursion": "def f(n):\\n a = Big()\\n if n == 0:\\n  raise RuntimeError('deep')\\n f(n - 1)\\nf(31)",
        "await": NESTED + "async def h():\\n b = Big()\\n f()\\nawait h()",
        "saved exception": TRY + "keep.append(e)\\n raise",
        "saved traceback": TRY + "keep.append(e.__traceback__)\\n raise",
    }
    real, sys.stdout, sys.stderr = sys.stdout, io.StringIO(), io.StringIO()
    gc.disable()
    shell.run_line_magic("xmode", mode)
    answer = {}
    for name, cell in CELLS.items():
        refs.clear()
        sys.stdout.seek(0), sys.stdout.truncate()
        result = shell.run_cell(cell, store_history=True)
        answer[name] = {"alive": alive(), "success": result.success, "printed": "Error" in sys.stdout.getvalue()}
        if keep_stack and act:
            sys.stdout.seek(0), sys.stdout.truncate()
            shell.run_line_magic("tb", "")
            answer[name]["tb"] = sys.stdout.getvalue()
        answer[name]["last"] = hasattr(sys, "last_value")
        answer[name]["told"] = told.pop("last", None)
        shell.user_ns["keep"].clear()
        gc.collect()
    # After %debug: the debugger holds frames too.
    shell.events.unregister("post_run_cell", after)
    refs.clear()
    result = shell.run_cell(NESTED + "f()")
    sys.stdin = io.StringIO("up\\nq\\n")
    shell.run_line_magic("debug", "")
    before = alive()
    shell.run_cell("1 + 1")
    shell.user_ns["table"] = __import__("numpy").zeros(2**18)
    found = release_frames(None, shell) if act else None
    answer["debug"] = {"before": before, "alive": alive(), "told": found and found.to_data(), "success": result.success}
    sys.stdout = real
    print(json.dumps(answer))
"""


def run_shell(mode: str, keep: str, act: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(SHELL), mode, keep, act],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout.strip().splitlines()[-1])  # type: ignore[no-any-return]


@pytest.fixture(scope="module", params=["Context", "Verbose", "Minimal"])
def released(request: pytest.FixtureRequest) -> dict[str, Any]:
    pytest.importorskip("IPython")
    return run_shell(request.param, "drop", "act")


def test_without_the_release_every_shape_is_held() -> None:
    """The control: the shell below would pass if nothing were held in the first place."""
    pytest.importorskip("IPython")
    answer = run_shell("Context", "drop", "rest")
    assert all(shape["alive"] > 0 for shape in answer.values())


def test_every_shape_of_cell_dies_in_a_real_shell(released: dict[str, Any]) -> None:
    shapes = {name: shape for name, shape in released.items() if name != "debug"}
    assert {name for name, shape in shapes.items() if shape["alive"]} == set()
    assert len(shapes) == 10
    for shape in shapes.values():
        assert shape["printed"] and not shape["last"]
        assert not shape["success"], "the kernel builds its reply from the result: the cell must still have failed"
        assert shape["told"]["frames_cleared"] >= 2


def test_after_debug_and_from_a_later_cell_it_still_works(released: dict[str, Any]) -> None:
    debug = released["debug"]
    assert debug["before"] > 0 and debug["alive"] == 0
    assert [(holder["name"], holder["bytes"]) for holder in debug["told"]["kept"]] == [("table", 2**21)]
    assert "Still held by table (2.00 MiB, float64 array (262144,))" in debug["told"]["sentence"]
    assert "`%xdel table` lets go of table." in debug["told"]["sentence"]


def test_keeping_the_stack_lets_go_of_the_locals_only() -> None:
    pytest.importorskip("IPython")
    answer = run_shell("Context", "keep", "act")
    shapes = {name: shape for name, shape in answer.items() if name not in ("debug", "class body", "closure")}
    assert {name for name, shape in shapes.items() if shape["alive"]} == set()
    for name, shape in shapes.items():
        assert shape["last"] and "Error" in shape["tb"], name
        assert "the stack is kept" in shape["told"]["sentence"]
    printed = re.sub(r"\x1b\[[0-9;]*m", "", answer["nested"]["tb"])
    assert "RuntimeError: cell failed" in printed and "def g(x):" in printed
