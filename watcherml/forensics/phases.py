"""In which part of training an exception was raised, from its traceback and from ``phase`` marks.

The innermost decisive frame wins. A frame of torch's own files decides by its path and function; checkpointing below
the autograd engine is recompute, the engine alone is backward. Forward work without gradients is evaluation; so is
that of a model in evaluation mode on batches of another loader, or below a function that is called so and has not
been seen to train. The name alone says it only where nothing shows that gradients were on: an objective called
``evaluate`` may train.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from types import FrameType
from typing import Any

from watcherml.forensics.modes import grad_enabled, module_training
from watcherml.forensics.origin import chain, names_of
from watcherml.forensics.origin import frames as frames
from watcherml.recorder.phase import phase_of

_EVALUATION_NAME = re.compile(
    r"_?(?:(?:run|do|on)_)?(?:evaluate|evaluation|evaluation_loop|eval|validate|validation|predict|prediction_step)"
    r"(?:_(?:step|loop|epoch|model|once|one_epoch|all|dataset))?|test_(?:step|loop|epoch)"
)
_SAVE = {"save", "_save", "_legacy_save", "save_checkpoint", "save_state", "_save_checkpoint", "save_state_dict"}
_LOAD = {"_apply", "to", "cuda", "load_state_dict", "to_empty"}

_BUILD = {"__init__", "reset_parameters", "_reset_parameters"}


def phase_of_exception(error: BaseException, *, other_loader: bool = False, stepping: Collection[str] = ()) -> str:
    """Return load, data, forward, backward, recompute, optimizer, evaluation, checkpoint, or unknown.

    ``other_loader`` says that the last batch came from another loader than those that were trained on. ``stepping``
    names the functions below which an optimizer made a step in this run; nothing is known of others before one did.
    """
    whole = chain(error)
    for one in reversed(whole):
        marked = phase_of(one)
        if marked is not None:
            return marked
    for one in reversed(whole):
        found = list(frames(one))
        said = phase_of_frames(
            [(frame.f_code.co_filename, frame.f_code.co_name) for frame, _ in found],
            training=module_training(found),
            grad_enabled=grad_enabled(one, found),
            other_loader=other_loader,
            stepping=stepping,
        )
        # What a module computes while it is built (a start for its weights, a table) is no step of training.
        if said in ("forward", "evaluation", "unknown") and _builds(found):
            return "load"
        if said != "unknown":
            return said
    return "unknown"


def _builds(found: list[tuple[FrameType, int]]) -> bool:
    """Tell whether a module was being built, not called, on the way to the failure."""
    kind: Any = getattr(getattr(sys.modules.get("torch"), "nn", None), "Module", None)
    for frame, _ in reversed(found if kind is not None else []):
        code = frame.f_code
        if _decisive(code.co_filename.replace("\\", "/"), code.co_name) in ("backward", "optimizer", "data"):
            return False
        made = names_of(frame).get(code.co_varnames[0]) if code.co_name == "__init__" and code.co_argcount else None
        if issubclass(type(made), kind):
            return True
    return False


def phase_of_frames(
    trace: list[tuple[str, str]],
    *,
    training: bool | None = None,
    grad_enabled: bool | None = None,
    other_loader: bool = False,
    stepping: Collection[str] = (),
) -> str:
    """Decide from (file, function) pairs, outermost first.

    ``training`` is the flag of the outermost module that was being called, ``grad_enabled`` torch's gradient mode.
    """
    names = [(file.replace("\\", "/"), function) for file, function in trace]
    for at in range(len(names) - 1, -1, -1):
        found = _decisive(*names[at])
        if found == "checkpointing":
            found = ""  # on its way forward a checkpointed block is forward like any other
        if found == "optimizer" and _is_closure(names[at + 1 :]):
            found = ""  # it is the training step that works there; the optimizer only called it
        if found == "forward":
            return _kind_of_forward(names[:at], training, grad_enabled, other_loader, stepping)
        if found:
            return found
    return "unknown"


def _kind_of_forward(
    outer: list[tuple[str, str]],
    training: bool | None,
    grad_enabled: bool | None,
    other_loader: bool,
    stepping: Collection[str],
) -> str:
    kinds = [_decisive(*one) for one in outer]
    if "backward" in kinds:
        engine = len(kinds) - 1 - kinds[::-1].index("backward")
        return "recompute" if "checkpointing" in kinds[engine:] else "backward"
    if grad_enabled is False:
        return "evaluation"
    named = any(_EVALUATION_NAME.fullmatch(function) and function not in stepping for _, function in outer)
    if named and grad_enabled is None:
        return "evaluation"
    # The flag alone does not tell: pretrained models start in evaluation mode, and some people train them so. Nor
    # does another loader: each trial of a search makes its own, and its model is in training mode. Two of the three
    # together do, the flag always among them where it is known.
    if training is None:
        return "evaluation" if other_loader and named else "forward"
    return "evaluation" if not training and (other_loader or (named and bool(stepping))) else "forward"


def _is_closure(inner: list[tuple[str, str]]) -> bool:
    """Tell whether an optimizer's frame, with these inside of it, was calling the function that computes the loss.

    LBFGS wants one, and Lightning gives one to every optimizer, whose ``step`` then holds the whole training step.
    """
    return any(
        function == "closure" or ("/loops/optimization/" in file and "/torch/" not in file) for file, function in inner
    )


def _decisive(file: str, function: str) -> str:
    if "/torch/optim/" in file:
        return "load" if function == "load_state_dict" else "" if "lr_scheduler" in file else "optimizer"
    if "/torch/utils/checkpoint" in file:
        return "checkpointing"
    if file.endswith(("/torch/_tensor.py", "/torch/autograd/__init__.py", "/torch/autograd/graph.py")):
        return "backward" if function in ("backward", "grad", "_engine_run_backward") else ""
    if "/torch/utils/data/" in file:
        return "data"
    if file.endswith("/torch/serialization.py") or "/torch/distributed/checkpoint/" in file:
        return "checkpoint" if function in _SAVE else "load" if "load" in function else ""
    if function == "from_pretrained":
        return "load"
    if file.endswith(("/torch/nn/init.py", "/torch/nn/parameter.py")):
        return "load"
    if "/torch/nn/modules/" in file and function in _BUILD:
        return "load"
    if file.endswith("/torch/nn/modules/module.py"):
        return "load" if function in _LOAD else "forward" if function == "_call_impl" else ""
    if file.endswith("/torch/autograd/function.py") and function == "apply":
        return "forward"  # a Function of the user's own; below the engine it is backward, as any forward work there
    return "forward" if file.endswith(("/torch/nn/functional.py", "/torch/functional.py")) else ""
