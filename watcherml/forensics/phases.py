"""In which part of training an exception was raised, from its traceback and from ``phase`` marks.

The innermost decisive frame wins. A frame of torch's own files decides by its path; checkpointing below the
autograd engine is recompute, the engine alone is backward.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType, TracebackType

from watcherml.recorder.phase import phase_of


def phase_of_exception(error: BaseException) -> str:
    """Return load, data, forward, backward, recompute, optimizer, evaluation, checkpoint, or unknown."""
    marked = phase_of(error)
    if marked is not None:
        return marked
    return phase_of_frames([(frame.f_code.co_filename, frame.f_code.co_name) for frame, _ in frames(error)])


def phase_of_frames(trace: list[tuple[str, str]]) -> str:
    """Decide from (file, function) pairs, outermost first."""
    names = [(file.replace("\\", "/"), function) for file, function in trace]
    in_backward = any("/torch/autograd/" in file or function == "backward" for file, function in names)
    for file, function in reversed(names):
        if "/torch/optim/" in file:
            return "optimizer"
        if "/torch/utils/checkpoint" in file and in_backward:
            return "recompute"
        if "/torch/autograd/" in file:
            return "backward"
        if "/torch/utils/data/" in file:
            return "data"
        if file.endswith("/torch/nn/modules/module.py") and function in ("_apply", "to", "cuda", "load_state_dict"):
            return "load"
        if function == "from_pretrained":
            return "load"
        if file.endswith("/torch/nn/modules/module.py") and function == "_call_impl":
            return "evaluation" if any(name in ("evaluate", "validate") for _, name in names) else "forward"
    return "unknown"


def frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of an exception's traceback with their line numbers, outermost first."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next
