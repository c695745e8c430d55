"""What training code tells the trial it runs in, and asks of it: its model, its largest batch, where to save.

The calls do nothing outside a trial, so that a training function can be used as it is anywhere else.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from watcherml.errors import InvalidValue
from watcherml.recorder.steps import StepCounter

# Memory is only seen in full on a step after the first: the first one makes the optimizer's state.
WORST_STEPS = 2
# Where nothing counts steps, two batches are two steps; where an optimizer does, accumulation may take this many.
_MOST_ROUNDS = 4_096
_LONGEST = 1_024
# Names a trial's own folder to all of its processes.
OUTPUTS = "WATCHERML_TRIAL_OUTPUTS"
_NAMED = 60  # characters of a folder's own name


class Told:
    """What was told in one trial; ``probes`` says whether it is a probe."""

    def __init__(self, counter: StepCounter, *, probes: bool, model: str | None = None) -> None:
        self.counter = counter
        self.probes = probes
        self.configured = model
        self.model: str | None = None


_here: Told | None = None


def listen(told: Told | None) -> Callable[[], None]:
    """Have ``identify`` and ``worst_batch`` speak to this trial; returns the call that undoes it."""
    global _here
    before = _here
    _here = told

    def undo() -> None:
        global _here
        _here = before

    return undo


def identify(*, model: str) -> None:
    """Tell a trial which model this is, such as a name and a revision; does nothing outside a trial.

    Every trial of a recovery must tell the same, and the contract's ``model_identifier`` is compared with it. Raises
    ``InvalidValue`` inside a trial if it is not text of 1 to 1024 characters, or if the configuration or an earlier
    call named another model: two names for one model prove nothing.
    """
    if _here is None:
        return
    if not isinstance(model, str) or not 0 < len(model) <= _LONGEST:
        got = f"{type(model).__name__} of {len(model)} characters" if isinstance(model, str) else type(model).__name__
        raise InvalidValue(
            "identify.model",
            expected=f"text of 1 to {_LONGEST} characters",
            got=got,
            remedy='Give a name, and a revision where there is one: identify(model="gpt2@607a30d").',
        )
    for known, by in ((_here.configured, "the configuration"), (_here.model, "an earlier call")):
        if known is not None and known != model:
            raise InvalidValue(
                "identify.model",
                expected=f"{known!r:.200}, as {by} has it",
                got=f"{model!r:.200}",
                remedy="Use one name for the model in both places.",
            )
    _here.model = model


def output_directory(usual: str | os.PathLike[str]) -> Path:
    """Return where to save: ``usual`` outside a trial, and in a trial a folder of that trial alone.

    So no trial overwrites your checkpoints or resumes from those of another trial. A trial's folder is made empty, is
    the same for the same ``usual`` in all processes of the trial, and is removed when the trial has ended. Outside
    nothing is made. Raises ``InvalidValue`` if ``usual`` is no path, and in a trial ``OSError`` if the folder cannot
    be made.
    """
    text = os.fspath(usual) if isinstance(usual, os.PathLike) else usual
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidValue("output_directory.usual", expected="the path of a folder", got=f"{usual!r:.80}")
    outputs = os.environ.get(OUTPUTS)
    if not outputs:
        return Path(usual)
    told = hashlib.sha256(os.fsencode(os.path.normpath(text))).hexdigest()[:8]
    folder = Path(outputs) / f"{Path(text).name[-_NAMED:] or 'outputs'}-{told}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def worst_batch(batch: Any) -> Iterator[Any]:
    """Return the batches to train on before all others: in a probe ``batch``, anywhere else none.

    ``batch`` is the largest one that training will ever see, or a function without arguments that makes it, called in
    a probe only. A probe of some steps would not meet a long batch that comes late; so it gets this one first, until
    two optimizer steps have been made on it (however many micro-batches that takes; twice where no step is counted)::

        for batch in itertools.chain(watcherml.worst_batch(longest), loader):
            ...

    Its steps count for ``max_steps`` like any others.
    """
    if _here is not None and _here.probes:
        yield from _rounds(batch() if callable(batch) else batch, _here.counter)


def _rounds(batch: Any, counter: StepCounter) -> Iterator[Any]:
    before = counter.seen
    for done in range(_MOST_ROUNDS):
        counted = counter.watches_optimizers or counter.marks > 0
        if counter.seen - before >= WORST_STEPS or (done >= WORST_STEPS and not counted):
            return
        yield batch
