"""Whether gradients were on, and the model in training mode, where an exception was raised.

By the time anybody looks, a ``with torch.no_grad()`` has been left. What is still there: the simulated device's note on
its exception, the tensors that the failing frames hold, torch's decorator frame, and the source of a ``with``. The
innermost switch decides: a closure runs with gradients on inside an optimizer's step without them.
"""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from types import FrameType
from typing import Any

from watcherml.forensics.matching import ask
from watcherml.forensics.origin import names_of

_SWITCHES = {"no_grad", "inference_mode", "enable_grad", "set_grad_enabled"}
_Said = bool | str | None  # on, off, as the variable of this name says, not known
_MOST_TENSORS = 200
Frames = list[tuple[FrameType, int]]
_NOTHING_NOTED = Exception()


def module_training(found: Frames) -> bool | None:
    """Return the ``training`` flag of the outermost torch module that was being called; None if none was."""
    base = _module_class()
    if base is None:
        return None
    for frame, _ in found:
        if frame.f_code.co_name == "_call_impl" and frame.f_code.co_filename.endswith("module.py"):
            module = names_of(frame).get("self")
            if isinstance(module, base):
                return bool(module.training)
    return None


def grad_enabled(error: BaseException, found: Frames) -> bool | None:
    """Return torch's gradient mode at the failure; None where nothing shows it.

    Reentrant checkpointing switches gradients off for its block on the way forward, because it computes the block
    again, and torch does for the forward of an ``autograd.Function``: the mode of the work is that around them.
    """
    noted = ask(error, "grad_enabled")
    around = _around_own_mode(found)
    if noted is False and around is not None:
        return grad_enabled(_NOTHING_NOTED, around)
    if isinstance(noted, bool):
        return noted
    for frame, line in reversed(found):
        switches = _switches(frame, line)
        if switches:
            if switches[-1] is not None:
                return switches[-1]
            break
    return True if _holds_a_graph(found) else None


def _around_own_mode(found: Frames) -> Frames | None:
    """Return the frames around the outermost checkpoint or autograd function; None where there is neither."""
    for at, (frame, _) in enumerate(found):
        file = frame.f_code.co_filename.replace("\\", "/")
        function = file.endswith("/torch/autograd/function.py") and frame.f_code.co_name == "apply"
        if function or file.endswith("/torch/utils/checkpoint.py"):
            return found[:at]
    return None


def _switches(frame: FrameType, line: int) -> list[bool | None]:
    """Return what the switches around a line of a frame set, outermost first; None where one cannot be read."""
    code = frame.f_code
    if code.co_name == "decorate_context" and code.co_filename.endswith("_contextlib.py"):
        factory = names_of(frame).get("ctx_factory")
        said = _of_context(getattr(factory, "__self__", None))
        return [] if said is None else [said]
    if _is_foreign(code.co_filename):
        return []
    around = [
        said
        for start, first, last, said in _blocks(code.co_filename, _length(code.co_filename))
        if code.co_firstlineno <= start and first <= line <= last  # not that around a function defined in it
    ]
    return [_value(frame, said) for said in around]


def _is_foreign(file: str) -> bool:
    """Tell libraries, whose switches may serve ends of their own, from user code and torch's optimizers."""
    return ("site-packages" in file or "dist-packages" in file) and "/torch/optim/" not in file.replace("\\", "/")


def _of_context(context: Any) -> bool | None:
    name = type(context).__name__
    if name in ("no_grad", "enable_grad"):
        return name == "enable_grad"
    mode = getattr(context, "mode", None) if name in _SWITCHES else None
    return None if not isinstance(mode, bool) else mode is (name == "set_grad_enabled")


def _value(frame: FrameType, said: _Said) -> bool | None:
    if not isinstance(said, str):
        return said
    value = names_of(frame).get(said)
    return value if isinstance(value, bool) else None


def _length(file: str) -> int:
    return len(linecache.getlines(file))  # a notebook's cells are there too


@functools.lru_cache(maxsize=64)
def _blocks(file: str, length: int) -> tuple[tuple[int, int, int, _Said], ...]:
    """Return the lines of every ``with torch.no_grad()`` and the like in a file, and what it sets, outer ones first.

    The lines are those of the ``with``, and of the begin and the end of its body. ``length`` is part of the key.
    """
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a cell with magics is no Python
        return ()
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            lines = (node.lineno, node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno)
            calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
            found += [(*lines, _sets(call)) for call in calls if _called(call) in _SWITCHES]
    return tuple(sorted(found, key=lambda block: block[:2]))


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _sets(call: ast.Call) -> _Said:
    name = _called(call)
    if name in ("no_grad", "enable_grad"):
        return name == "enable_grad"
    values = [*call.args, *(word.value for word in call.keywords if word.arg == "mode")]
    first = values[0] if values else None
    if name == "inference_mode":
        # Switched off it turns gradients on.
        return False if first is None else not first.value if isinstance(first, ast.Constant) else None
    if isinstance(first, ast.Name):
        return first.id
    return bool(first.value) if isinstance(first, ast.Constant) else None


def _holds_a_graph(found: Frames) -> bool:
    """Tell whether a frame inside torch's call of a module or function holds a result with a graph behind it.

    Further out a graph may be that of an earlier step.
    """
    tensor: Any = getattr(sys.modules.get("torch"), "Tensor", None)
    inside = next((at for at, (frame, _) in enumerate(found) if _is_torch(frame)), len(found))
    looked = 0
    for frame, _ in found[inside:]:
        for value in names_of(frame).values() if tensor is not None and looked < _MOST_TENSORS else ():
            if isinstance(value, tensor):
                looked += 1
                if value.grad_fn is not None:
                    return True
    return False


def _is_torch(frame: FrameType) -> bool:
    return "/torch/nn/" in frame.f_code.co_filename.replace("\\", "/")


def _module_class() -> Any:
    return getattr(getattr(sys.modules.get("torch"), "nn", None), "Module", None)
