"""Whether gradients were on, and the model in training mode, where an exception was raised.

By the time anybody looks, a ``with torch.no_grad()`` has been left. What is still there: the simulated device's note on
its exception, the tensors that the failing frames hold, torch's decorator frame, and the source of a ``with``.
"""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from types import FrameType
from typing import Any

from watcherml.forensics.origin import names_of

_OFF = {"no_grad", "inference_mode"}
_MOST_TENSORS = 200
Frames = list[tuple[FrameType, int]]


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
    """Return torch's gradient mode at the failure; None where nothing shows it."""
    noted = getattr(error, "grad_enabled", None)
    if isinstance(noted, bool):
        return noted
    if any(_switched_off(frame, line) for frame, line in found):
        return False
    return True if _holds_a_graph(found) else None


def _switched_off(frame: FrameType, line: int) -> bool:
    code = frame.f_code
    if code.co_name == "decorate_context" and code.co_filename.endswith("_contextlib.py"):
        factory = names_of(frame).get("ctx_factory")
        return type(getattr(factory, "__self__", None)).__name__ in _OFF
    if "site-packages" in code.co_filename or "dist-packages" in code.co_filename:
        return False
    return any(first <= line <= last for first, last in _blocks(code.co_filename, _length(code.co_filename)))


def _length(file: str) -> int:
    return len(linecache.getlines(file))  # a notebook's cells are there too


@functools.lru_cache(maxsize=64)
def _blocks(file: str, length: int) -> tuple[tuple[int, int], ...]:
    """Return the lines of every ``with torch.no_grad()`` and the like in a file; ``length`` is part of the key."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a cell with magics is no Python
        return ()
    return tuple(
        (node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno)
        for node in ast.walk(tree)
        if isinstance(node, (ast.With, ast.AsyncWith)) and any(_is_off(item.context_expr) for item in node.items)
    )


def _is_off(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    first = value.args[0] if value.args else None
    said = first.value if isinstance(first, ast.Constant) else None
    if name == "set_grad_enabled":
        return said is False
    return name in _OFF and said is not False


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
