"""The process of a dry run: ``python -m watcherml.trials.dry_run_child``, driven by ``dry_run`` over standard input.

It imports torch once, confines itself, imports the entrypoint, and answers each candidate from a fork of its own, so
that every candidate meets a fresh process as a trial does, and one that aborts takes nobody with it. An answer is a
file whose name the entrypoint cannot guess.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.errors import WatcherError
from watcherml.platform import die_with_parent, signal_name, write_atomically
from watcherml.recorder.resupply import resupply
from watcherml.recorder.steps import StepCounter, count_here
from watcherml.recorder.told import Told, listen
from watcherml.trials import loading
from watcherml.trials.confine import Fence, confine
from watcherml.trials.measure import model_identifier
from watcherml.trials.members import put_mark
from watcherml.trials.paths import GUARD, MARKER

STEPS = 2  # the optimizer's state is there from the second step on
# Stand in for an integer that is computed from data; a peak that is the same for both does not depend on it.
MADE_UP_INTEGERS = (1, 97)

_REASONS = (
    ("DataDependentOutputException", "it reads back a value that is computed from data"),
    ("DynamicOutputShapeException", "the shape of a tensor depends on values"),
    ("UnsupportedFakeTensorException", "it uses a tensor that cannot be made without data"),
    ("UnsupportedOperatorException", "it uses an operator whose result's shape is not known to PyTorch"),
    ("Mixing fake modes", "it keeps tensors from one training to the next"),
    ("refused while code is only looked at", "it acts outside of the training"),
    ("not linked with support for cuda", "it asks for a CUDA device, which a prediction has not got"),
    ("Found no NVIDIA driver", "it asks for a CUDA device, which a prediction has not got"),
    ("Torch not compiled with CUDA", "it asks for a CUDA device, which a prediction has not got"),
    ("got a tensor on cuda", "it asks for a CUDA device, which a prediction has not got"),
    ("access data pointer", "it reads the memory of a tensor, which has no data here"),
    (".numpy() is not supported", "it turns a tensor into an array, which has no data here"),
)  # fmt: skip


class Enough(BaseException):
    """The steps that were asked for are done; not an ``Exception``, so that training code does not catch it."""


class TooMuchWork(BaseException):
    """The candidate's operators are used up."""


class _Counter(StepCounter):
    """Ends training when a step more than asked for begins, whether optimizers or marks count it."""

    def __init__(self) -> None:
        self._marks = 0
        super().__init__()

    @property
    def marks(self) -> int:
        return self._marks

    @marks.setter
    def marks(self, count: int) -> None:
        self._marks = count
        if count > STEPS:
            raise Enough

    def stop_before_the_next(self) -> None:
        """Watch every torch optimizer; what follows the last step, such as an evaluation, still runs."""
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        self.hook_torch()
        register_optimizer_step_pre_hook(self._begins)

    def _begins(self, optimizer: Any, *_: Any) -> None:
        if self.optimizers[id(optimizer)] >= STEPS:
            raise Enough


class _Work:
    """Counts operators, and ends a candidate that needs more than its share."""

    def __init__(self, limit: int | None) -> None:
        self.limit, self.operators = limit, 0

    def __call__(self) -> None:
        self.operators += 1
        if self.limit is not None and self.operators > self.limit:
            raise TooMuchWork


def main() -> int:
    """Answer requests until standard input ends."""
    if os.environ.get(GUARD, "").isdigit():
        die_with_parent(int(os.environ[GUARD]))
    put_mark(os.environ[MARKER])
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # code that asks a question must not eat our requests
    os.close(nothing)
    _warm_up()
    order = json.loads(requests.readline() or "null")
    if order is None:
        return 0
    scratch = Path(order["scratch"])
    fence = confine(scratch)
    function, reason = _load(order)
    _answer(scratch, order["nonce"], 0, {"reason": reason})
    if function is None:
        return 0
    for line in requests:
        request = json.loads(line)
        _in_a_fork(partial(_candidate, function, request, order), order, request["number"], fence)
    return 0


def _warm_up() -> None:
    """Load what the first fake training of a process loads, once for all candidates."""
    import torch
    from torch import nn

    from watcherml.simulated.prediction import predicted_device

    with predicted_device():
        model = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4))
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.zeros(2, 2, dtype=torch.long)).sum().backward()
        optimizer.step()
    _load_without_workers(torch.utils.data.DataLoader)
    torch.save = lambda *_, **__: None  # C++ opens that file, and there is nothing to save


def _load_without_workers(loader_class: Any) -> None:
    # A loader's worker processes would make their batches without the fake mode, or hang.
    own = loader_class.__init__

    def __init__(loader: Any, *arguments: Any, **options: Any) -> None:
        bound = inspect.signature(own).bind(loader, *arguments, **options)
        if bound.arguments.get("num_workers"):
            for name in ("num_workers", "prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout"):
                bound.arguments.pop(name, None)
        own(*bound.args, **bound.kwargs)

    loader_class.__init__ = __init__


def _load(order: Mapping[str, Any]) -> tuple[Callable[..., Any] | None, str]:
    entrypoint = TrainingEntrypoint(order["target"], order["working_directory"])
    warnings.simplefilter("ignore")
    try:
        loading.arrange(Path(order["project_root"]), entrypoint.working_directory)
        return loading.load(entrypoint), ""
    except WatcherError as error:
        return None, error.message
    except BaseException as error:  # noqa: BLE001 - the module's code may raise anything
        return None, _words(error)


def _in_a_fork(answer: Callable[[], dict[str, Any]], order: Mapping[str, Any], number: int, fence: Fence) -> None:
    scratch, nonce = Path(order["scratch"]), order["nonce"]
    if not hasattr(os, "fork"):
        _answer(scratch, nonce, number, answer())
        return
    asking = os.getpid()
    process = os.fork()
    if process == 0:
        try:
            die_with_parent(asking)
            fence.may_fork = False  # nothing may be left that nobody waits for
            _answer(scratch, nonce, number, answer())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
    _, status = os.waitpid(process, 0)
    if not answer_path(scratch, nonce, number).exists():
        code = os.waitstatus_to_exitcode(status)
        how = f"by {signal_name(-code)}" if code < 0 else f"with exit code {code}"
        _answer(scratch, nonce, number, {"reason": f"its process ended {how}"})


def _candidate(function: Callable[..., Any], request: Mapping[str, Any], order: Mapping[str, Any]) -> dict[str, Any]:
    began = time.monotonic()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ.update(request["environment"])
    work = _Work(request["operators"])
    integer = request["integer"]
    peak, steps, reason, again = _attempt(function, request, order, work, integer)
    if again:  # an integer from data: the peak counts if it does not depend on it
        found = [_attempt(function, request, order, work, integer)[:2] for integer in MADE_UP_INTEGERS]
        if found[0] == found[1] and found[0][0] is not None:
            (peak, steps), reason, integer = found[0], "", MADE_UP_INTEGERS[0]
    return {"integer": integer, "peak_bytes": peak, "steps": steps, "reason": reason, "operators": work.operators,
            "seconds": round(time.monotonic() - began, 3)}  # fmt: skip


def _attempt(
    function: Callable[..., Any], request: Mapping[str, Any], order: Mapping[str, Any], work: _Work, integer: int | None
) -> tuple[int | None, int, str, bool]:
    """Return the peak (None where there is none), the steps, the reason, and whether an integer stood in the way."""
    from watcherml.simulated.prediction import predicted_device

    counter = _Counter()
    # As a probe, which trains on the worst batch where the entrypoint names it.
    told = Told(counter, probes=True, model=model_identifier(request["config"]))
    undo = (count_here(counter), listen(told))
    counter.stop_before_the_next()
    device, error = None, None
    try:
        config = resupply(request["config"], order["secrets"], os.environ)
        options = {"max_steps": STEPS} if "max_steps" in inspect.signature(function).parameters else {}
        with predicted_device(integer=integer, each_operator=work) as device:
            function(config=config, **options)
    except BaseException as raised:  # noqa: BLE001 - whatever ends the training; two steps are an answer
        error = raised
    finally:
        for one in undo:
            one()
    steps = counter.seen
    if isinstance(error, TooMuchWork):
        return None, steps, f"it needs more than {work.limit} operators", False
    if device is not None and steps >= STEPS:
        return device.peak_bytes, steps, "", False
    if error is None or isinstance(error, Enough):
        return None, steps, f"it made {steps} optimizer steps, and {STEPS} are needed", False
    return None, steps, _words(error), type(error).__name__ == "DataDependentOutputException"


def _words(error: BaseException) -> str:
    """Return in words why code could not be run without data, with the error's own first line."""
    from watcherml.recorder.redact import redact_text

    name, text = type(error).__name__, str(error).strip()
    told = redact_text(f"{name}: {(text.splitlines() or [''])[0]}")[:200]
    for sign, reason in _REASONS:
        if sign in name or sign in text:
            return f"{reason} ({told})"
    return f"it raised {told}"


def answer_path(scratch: Path, nonce: str, number: int) -> Path:
    """Return where the answer of a number is written; 0 is that of the import."""
    return scratch / f"answer.{nonce}.{number}.json"


def _answer(scratch: Path, nonce: str, number: int, found: Mapping[str, Any]) -> None:
    write_atomically(answer_path(scratch, nonce, number), json.dumps(found).encode())


if __name__ == "__main__":
    sys.exit(main())
