"""Cells that fail in every shape, and the code that counts what is still alive of what they held."""

OOM = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 3.00 MiB is"
    " free. Including non-PyTorch memory, this process has 7.90 GiB memory in use. Of the allocated memory 7.10 GiB"
    " is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
)
BIG_BYTES = 8_000_000

# ``Big`` stands for a tensor: it can be watched, and its bytes are really there. What is alive is counted twice: by a
# hook behind the extension's, before any other cell has run, and whenever a later cell asks.
SETUP = f"""
%load_ext watcherml
import concurrent.futures, contextlib, gc, sys, threading, weakref
import watcherml
from watcherml.notebook.session import Session
refs, counted, keep = [], [], []
OOM = {OOM!r}
class Big:
    def __init__(self):
        self.data = b"x" * {BIG_BYTES}
        refs.append(weakref.ref(self))
def alive():
    return sum(ref() is not None for ref in refs)
def fail(argument=None):
    local = Big()
    raise RuntimeError(OOM)
def outer():
    a = Big()
    fail(Big())
def fresh():
    refs.clear(); counted.clear(); keep.clear(); gc.collect()
@contextlib.contextmanager
def manager():
    inside = Big()
    yield inside
session = Session.of(get_ipython())
get_ipython().events.register("post_run_cell", lambda result: counted.append(alive()))
"""

SHAPES = {
    "nested call": "outer()",
    "locals of a cell-level function": "def f():\n    x = [Big(), {'k': Big()}]\n    fail(x)\nf()",
    "raise from": "def f():\n    b = Big()\n    try:\n        outer()\n    except RuntimeError as error:\n"
    "        raise ValueError('wrapped') from error\nf()",
    "raise while handling": "def f():\n    b = Big()\n    try:\n        1 / 0\n"
    "    except ZeroDivisionError:\n        outer()\nf()",
    "from None": "def f():\n    b = Big()\n    try:\n        outer()\n    except RuntimeError:\n"
    "        raise RuntimeError(OOM) from None\nf()",
    "closure": "def f():\n    a = Big()\n    def g():\n        b = Big()\n        a\n        fail(b)\n    g()\nf()",
    "class body in a function": "def f():\n    class C:\n        a = Big()\n        fail(a)\nf()",
    "class body at the top": "class C:\n    a = Big()\n    b = [Big()]\n    fail(a)",
    "comprehension": "def f():\n    return [fail(x) for x in [Big(), Big()]]\nf()",
    "generator": "def g():\n    a = Big()\n    yield a\n    outer()\ndef f():\n    for b in g():\n        pass\nf()",
    "recursion": "def f(n):\n    a = Big() if n % 8 == 0 else n\n    if n == 0:\n        fail(a)\n    f(n - 1)\nf(40)",
    "context manager": "def f():\n    with manager() as m, manager() as n:\n        outer()\nf()",
    "await": "async def f():\n    b = Big()\n    outer()\nawait f()",
    "await of a task": "import asyncio\nasync def f():\n    b = Big()\n    await asyncio.sleep(0)\n    outer()\n"
    "async def g():\n    await asyncio.gather(f(), asyncio.sleep(0))\nawait g()",
    "saved exception": "try:\n    outer()\nexcept RuntimeError as error:\n    keep.append(error)\n    raise",
    "saved traceback": "try:\n    outer()\nexcept RuntimeError as error:\n"
    "    keep.append(error.__traceback__)\n    raise",
    "saved frame": "try:\n    outer()\nexcept RuntimeError as error:\n"
    "    keep.append(error.__traceback__.tb_next.tb_frame)\n    raise",
    "sys.exc_info": "try:\n    outer()\nexcept RuntimeError:\n    keep.append(sys.exc_info())\n    raise",
    "future of a pool": "pool = concurrent.futures.ThreadPoolExecutor(1)\nfuture = pool.submit(outer)\nfuture.result()",
    "with a run": "with watcherml.init('inner'):\n    outer()",
    "after a marked step": "with watcherml.init('inner') as run:\n    b = 1\n"
    "    with watcherml.phase('forward'):\n        outer()",
    "%time": "%time outer()",
    "%%time": "%%time\nouter()",
    "%%capture": "%%capture\nouter()",
    "%timeit": "%timeit -n 1 -r 1 outer()",
    "%run": "%run script.py",
    "exec": "exec('def f():\\n    b = Big()\\n    outer()\\nf()')",
    "nested run_cell": "get_ipython().run_cell('outer()').raise_error()",
    "cycle through the exception": "def f():\n    b = Big()\n    try:\n        outer()\n"
    "    except RuntimeError as error:\n        b.error = error\n        raise\nf()",
    "thread": "thread = threading.Thread(target=outer)\nthread.start()\nthread.join()",
    "thread with a run": "def f():\n    with watcherml.init('in a thread'):\n        outer()\n"
    "thread = threading.Thread(target=f)\nthread.start()\nthread.join()",
    "group": "def f():\n    b = Big()\n    found = []\n    for _ in range(2):\n        try:\n            outer()\n"
    "        except RuntimeError as error:\n            found.append(error)\n"
    "    raise ExceptionGroup('both', found)\nf()",
}
SCRIPT = "space = get_ipython().user_ns\nBig, fail = space['Big'], space['fail']\n"
SCRIPT += "def f():\n    b = Big()\n    fail(b)\nf()\n"
# IPython catches or prints these itself, or they end elsewhere: the cell's own reply is that all went well.
QUIET = {"%time", "%%time", "%%capture", "%run", "thread", "thread with a run"}
# These need what older Pythons do not have.
SINCE = {"group": (3, 11)}
