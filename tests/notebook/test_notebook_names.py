"""Names that a body lacks: what is copied from earlier cells, what is refused, and with which words."""

import pytest

from watcherml.errors import InvalidEntrypoint
from watcherml.notebook.bindings import Ran, bindings, plain
from watcherml.notebook.names import complete


def cells(*sources):
    return [one if isinstance(one, Ran) else Ran(number, one) for number, one in enumerate(sources, 1)]


def body(expression):
    return f"def train(config, max_steps=None):\n    return {expression}\n"


# name: (executed cells, what the body reads, the code that is copied)
COPIED = {
    "an import": (["import math"], "math.pi", "import math"),
    "one name of a statement with several": (["import os, math as m, sys"], "m", "import math as m"),
    "a name of a package": (["from a.b import c as d, e"], "d", "from a.b import c as d"),
    "two modules of one package": (["import a.b", "x = 1\nimport a.c"], "a", "import a.b\nimport a.c"),
    "an import after a value of that name": (["math = 3", "import math"], "math", "import math"),
    "the last definition": (["def f():\n    return 1", "def f():\n    return 2"], "f()",
                            "# From cell [2].\ndef f():\n    return 2"),
    "a def with its comments and its decorator": (
        ["import functools\n@functools.cache  # kept\ndef f():\n    # why\n    return 1"], "f()",
        "import functools\n\n# From cell [1].\n@functools.cache  # kept\ndef f():\n    # why\n    return 1"),
    "a class with its base": (["class A:\n    pass", "class B(A):\n    pass"], "B()",
                              "# From cell [1].\nclass A:\n    pass\n\n# From cell [2].\nclass B(A):\n    pass"),
    "what a def needs, and what that needs": (
        ["import math", "def g():\n    return math.pi", "def f():\n    return g()"], "f()",
        "import math\n\n# From cell [2].\ndef g():\n    return math.pi\n\n# From cell [3].\ndef f():\n    return g()"),
    "defs that need each other": (["def f(n):\n    return g(n)\ndef g(n):\n    return f(n)"], "f(1)",
                                  "# From cell [1].\ndef f(n):\n    return g(n)\n\n"
                                  "# From cell [1].\ndef g(n):\n    return f(n)"),
    "a base that was defined again, first": (["class A:\n    x = 1", "class B(A):\n    pass", "class A:\n    x = 2"],
                                             "B()", "# From cell [3].\nclass A:\n    x = 2\n\n"
                                             "# From cell [2].\nclass B(A):\n    pass"),
    "a def in a cell with magics": (["%matplotlib inline\n!ls\nfiles = !ls\ndef f():\n    return 1"], "f()",
                                    "# From cell [1].\ndef f():\n    return 1"),
    "a def of a timed cell": (["%%time\ndef f():\n    return 1"], "f()", "# From cell [1].\ndef f():\n    return 1"),
    "a def of a run cell": (["%%watcher run --name r\ndef f():\n    return 1"], "f()",
                            "# From cell [1].\ndef f():\n    return 1"),
    "a def before the line that failed": ([Ran(7, "def f():\n    return 1\nboom()\ndef g(): pass", 3)], "f()",
                                          "# From cell [7].\ndef f():\n    return 1"),
    "the earlier def where the later cell failed before its own": (
        ["def f():\n    return 1", Ran(2, "boom()\ndef f():\n    return 2", 1)], "f()",
        "# From cell [1].\ndef f():\n    return 1"),
    "an async def": (["async def f():\n    pass"], "f()", "# From cell [1].\nasync def f():\n    pass"),
    "a def of a cell that nobody counted": ([Ran(None, "def f(): pass")], "f()",
                                            "# From an earlier cell.\ndef f(): pass"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(COPIED))
def test_what_is_copied_is(case):
    sources, expression, code = COPIED[case]
    found = complete(body(expression), cells(*sources))
    assert found.code == code
    assert found.source == f"{code}\n\n\n{body(expression)}"
    assert complete(found.source, []).copied == ()  # nothing is lacking any more
    compile(found.source, "module", "exec")


# name: (executed cells, what the body reads, words of the refusal)
REFUSED = {
    "a value": (["x = 1\nscale = 3  # three"], "scale",
                ["scale (line 2)", "Cell [1], line 2, makes the value scale (`scale = 3  # three`)", "config"]),
    "a value behind an import": (["import json", "json = None"], "json", ["Cell [2], line 1, makes the value json"]),
    "a lambda": (["f = lambda: 1"], "f()", ["makes the value f"]),
    "a loop's variable": (["for epoch in range(3):\n    pass"], "epoch", ["makes the value epoch"]),
    "a file's": (["with open('x') as handle:\n    pass"], "handle", ["makes the value handle"]),
    "a value that a def reads": (["scale = 3", "def f():\n    return scale"], "f()",
                                 ["scale (`def f`, line 2 of cell [2])", "Cell [1], line 1, makes the value scale"]),
    "a value that a decorator reads": (["retry = make()", "@retry\ndef f():\n    pass"], "f()",
                                       ["retry (`def f`, line 1 of cell [2])"]),
    "a name bound in several ways": (["try:\n    import fast as lib\nexcept ImportError:\n    lib = None"], "lib",
                                     ["binds lib in more than one way", "`try:`", "copy that statement"]),
    "a def under a condition": (["if True:\n    def f():\n        pass"], "f()", ["more than one way"]),
    "a deleted name": (["import math", "del math"], "math", ["Cell [2], line 1, deletes math"]),
    "a name that a star may bring": (["from torch import *"], "nn", ["`from torch import *`", "import nn by its name"]),
    "a name that nobody defines": (["x = 1"], "nothing", ["No cell of this session defines nothing."]),
    "a name of IPython": ([], "display(1)", ["display is there in a notebook only"]),
    "a def that uses a magic": (["def f():\n    %time x = 1"], "f()", ["get_ipython", "`def f`, line 2 of cell [1]"]),
    "a def behind the line that failed": ([Ran(3, "boom()\ndef f(): pass", 1)], "f()",
                                          ["Cell [3], line 2,", "ended before it was executed"]),
    "a def of a cell that did not compile": ([Ran(3, "def f(): pass", 0)], "f()", ["ended before"]),
    "a def that was written to a file": (["%%writefile x.py\ndef f(): pass"], "f()", ["No cell of this session"]),
    "a def with a secret": (["def f():\n    return '[redacted:12345678]'"], "f()", ["looks like a secret"]),
    "a class of another recovery": (["%%watcher recover\nclass A: pass"], "A()", ["No cell of this session"]),
}  # fmt: skip


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_is_refused_is(case):
    sources, expression, words = REFUSED[case]
    with pytest.raises(InvalidEntrypoint) as refusal:
        complete(body(expression), cells(*sources))
    for word in words:
        assert word in str(refusal.value)


def test_a_name_that_the_kernel_has_no_more_is_refused():
    with pytest.raises(InvalidEntrypoint, match="not there any more"):
        complete(body("f()"), cells("def f(): pass"), present=set())


def test_a_refusal_says_what_could_be_copied_besides():
    with pytest.raises(InvalidEntrypoint) as refusal:
        complete(body("math.pi * scale"), cells("import math\nscale = 3"))
    assert "math can be copied" in str(refusal.value) and "math (line" not in str(refusal.value)


def test_the_bodys_own_names_are_not_taken_from_cells():
    source = "scale = 5\n" + body("f()")
    found = complete(source, cells("scale = 3", "def f():\n    return scale"))
    assert [one.name for one in found.copied] == ["f"]


def test_a_base_that_was_defined_again_after_its_use_is_a_caution():
    sources, expression, _ = COPIED["a base that was defined again, first"]
    assert complete(body(expression), cells(*sources)).cautions == (
        "Cell [3] defines A again after cell [2] has used it for B; the copy uses the later one.",
    )
    assert complete(body("f()"), cells("def f():\n    return g()", "def g(): pass")).cautions == ()


HEADS = [
    "",
    "'''What it does.'''\n",
    "from __future__ import annotations\n",
    "# a note\n'''Doc.'''\n\nfrom __future__ import division\n",
]


@pytest.mark.parametrize("head", HEADS)
def test_copied_code_stands_behind_what_has_to_come_first(head):
    found = complete(head + body("math.pi"), cells("import math"))
    names = {}
    exec(compile(found.source, "module", "exec"), names)
    assert names["train"]({}) > 3
    assert found.source.startswith(head.rstrip("\n"))


def test_a_body_that_lacks_nothing_is_left_as_it_is():
    source = "import math\n" + body("math.pi")
    assert complete(source, cells("import math")).source == source


def test_leading_lines_and_magics_keep_the_numbers_of_a_cell():
    (first, second) = bindings("\n\n%matplotlib inline\nx = 1\ny = 2")
    assert (first.line, second.line) == (4, 5)
    assert plain("%%html\n<b>") == "" and plain("%%time\n%%capture\nx = 1") == "#\n#\nx = 1\n"
    assert bindings("not python at all") == () and bindings("def broken(:") == ()
