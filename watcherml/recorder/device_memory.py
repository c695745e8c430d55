"""What the training's device held while a run went on: at its start, after each optimizer step, batch by batch.

Read from counters that torch or the simulated device keeps anyway: no synchronisation, no context is created, and a
reading that is expensive beside the steps is taken less often. Runs of one process hear each other's steps.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

from watcherml.recorder import batches, framework
from watcherml.recorder.late import when_imported
from watcherml.recorder.thinned import Thinned
from watcherml.simulated import active

MOST_READINGS = 512  # of each series
MOST_BATCHES = 2_000
# The first readings are always taken; a later one waits until the steps since the last took this many times its cost.
ALWAYS = 32
COST_FACTOR = 100
_OPTIMIZERS = "/torch/optim/optimizer.py"
_postponed: list[Callable[[], None]] = []  # removals of hooks that stopped while torch called them


class Reading(NamedTuple):
    """One look at a device: what tells it from others, bytes allocated now, and the largest so far."""

    device: str
    allocated: int
    peak: int


class MemoryLog:
    """Belongs to one run. After an error of its own it hears nothing more and tells ``failed`` once."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self._undo: list[Callable[[], None]] = []
        self._deaf = False
        self._seen: dict[int, weakref.ref[Any]] = {}  # by identity: an optimizer need have no hash
        self._start: dict[str, int] = {}
        self._start_peak: dict[str, int] = {}
        self._at_failure: dict[str, int] = {}
        self._earlier: bool | None = None
        self._refused = 0
        self._retries: dict[str, int] = {}
        self._refusals: dict[str, int] = {}
        self._retrying: dict[str, tuple[int, int, int]] = {}  # retries so far, steps running with some, the longest row
        self._device = ""
        self._last: Reading | None = None
        self._last_step = 0
        self._next_at = 0.0
        self._since_step = 0
        self._loaders = batches.Names()
        self._trained_on: int | None = None
        self.watches_steps = False
        self.step = 0  # completed optimizer steps; optimizers that take turns make one together
        self._took_turn: set[int] = set()  # who stepped since the last of them was counted
        self.stepping: frozenset[str] = frozenset()  # the functions that were being called at the first step
        self.in_step_peak: int | None = None
        self.after_steps = Thinned(MOST_READINGS)
        self.after_batches = Thinned(MOST_READINGS)  # since the last optimizer step, the loader of the last batch
        self.batch_elements: deque[tuple[int, int]] = deque(maxlen=MOST_BATCHES)

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Read what is held now and listen from now on, also where torch is imported later."""
        if self._undo:
            return
        _undo_postponed()
        self._deaf = False
        self._start, self._retries, self._refusals = {}, framework.retries(), framework.refusals()
        self._retrying = {}
        for one in readings():
            self._start[one.device], self._start_peak[one.device] = one.allocated, one.peak
        self._refused = active.refusals
        self._earlier = active.refusals > 0 or sum(self._refusals.values()) > 0
        self._undo.append(when_imported("torch.optim.optimizer", self._attach))
        self._undo.append(batches.listen(self._batch))

    def stop(self) -> None:
        """Listen no longer; what was read stays.

        Called from a hook of an optimizer's step, it leaves ours in torch's list, which torch walks just then, and
        the next start or stop outside takes it out.
        """
        self._deaf = True
        _postponed.extend(reversed(self._undo))
        self._undo.clear()
        _undo_postponed()

    def note_failure(self) -> None:
        """Read what is held right after a failure, before the making of a capsule lets Python collect garbage."""
        self._at_failure = {one.device: one.allocated for one in last_readings()}

    # -- what a failure asks --------------------------------------------------------------------------------------

    def at_start(self, device: str) -> int | None:
        """Return the bytes that a device held at the start, 0 if it was not in use then; None before ``start``."""
        return None if self._earlier is None else self._start.get(device, 0)

    def saw_refusal(self, device: str) -> bool:
        """Tell whether the device's allocator refused a request since the start; True where it does not count them.

        A failure from before the start is no failure of this run's steps.
        """
        if self._earlier is None:
            return False
        if device.startswith("simulated:"):
            return active.refusals > self._refused
        since = self.refusals_since_start(device)
        return since is None or since > 0

    def at_failure(self, device: str) -> int | None:
        """Return the bytes that ``note_failure`` read on a device, None where it read none."""
        return self._at_failure.get(device)

    @property
    def earlier_out_of_memory(self) -> bool | None:
        """Whether an allocator of this process had refused a request before the run started; None before ``start``."""
        return self._earlier

    def retries_since_start(self, device: str) -> int | None:
        """Return how often torch's allocator emptied its cache and tried again; None where it does not count."""
        now = framework.retries().get(device)
        return None if now is None else now - self._retries.get(device, 0)

    def retrying_steps(self, device: str) -> int | None:
        """Return in how many optimizer steps running the allocator had to try again; None where no step was counted."""
        found = self._retrying.get(device)
        return None if found is None else found[2]

    def refusals_since_start(self, device: str) -> int | None:
        """Return how many requests torch's allocator refused, those included that torch itself caught."""
        now = framework.refusals().get(device)
        return None if now is None else now - self._refusals.get(device, 0)

    @property
    def batches_since_step(self) -> int:
        """How many batches of the last loader were finished after the last optimizer step; the failing one is not."""
        return max(0, self._since_step - 1)

    @property
    def other_loader(self) -> bool:
        """Whether the last batch came from another loader than the one before the last optimizer step."""
        return bool(self.batch_elements) and self._trained_on not in (None, self.batch_elements[-1][0])

    def optimizers(self) -> list[Any]:
        """Return the optimizers that stepped and are alive."""
        return [alive for one in list(self._seen.values()) if (alive := one()) is not None]

    def of_device(self, device: str) -> bool:
        """Tell whether the series are about this device."""
        return self._device in ("", device)

    def batches_of_last_loader(self) -> list[int]:
        """Return the elements of each batch of the loader that gave the last one, oldest first."""
        if not self.batch_elements:
            return []
        last = self.batch_elements[-1][0]
        return [count for key, count in self.batch_elements if key == last]

    # -- hooks ----------------------------------------------------------------------------------------------------

    def _attach(self, module: Any) -> None:
        self.watches_steps = True
        if not _in_post_hooks():
            self._undo.append(module.register_optimizer_step_post_hook(self._stepped).remove)
            return
        # A run that starts in a hook after a step: torch walks those hooks just now, and the others before a step.
        attached: list[Any] = []

        def attach(*_: Any) -> None:
            if not attached and not self._deaf:
                attached.append(module.register_optimizer_step_post_hook(self._stepped))
                self._undo.append(attached[0].remove)

        self._undo.append(module.register_optimizer_step_pre_hook(attach).remove)

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if self._deaf:
            return
        try:
            self._seen[id(optimizer)] = weakref.ref(optimizer)
            self._since_step = 0
            self.stepping = self.stepping or _calling()
            self._trained_on = self.batch_elements[-1][0] if self.batch_elements else None
            self.after_batches.clear()
            # Another optimizer of the same loop; that of a later training is on its own, and its steps count.
            if self.step and id(optimizer) not in self._took_turn:
                self._took_turn.add(id(optimizer))
                return
            self._took_turn = {id(optimizer)}
            self.step = count = self.step + 1
            self._note_retries(optimizer)
            if self.after_steps.wants(count) and self._due(count):
                found = self._read(optimizer)
                if found is not None:
                    self.after_steps.add(count, found.allocated)
        except Exception as error:  # noqa: BLE001 - training goes on
            self._give_up(error)

    def _note_retries(self, optimizer: Any) -> None:
        index = _cuda_index(optimizer)
        now = None if index is None else framework.retries_of(index)
        if now is None:
            return
        device = f"cuda:{index}"
        before, running, longest = self._retrying.get(device, (self._retries.get(device, 0), 0, 0))
        running = running + 1 if now > before else 0
        self._retrying[device] = now, running, max(longest, running)

    def _batch(self, loader: object, elements: int) -> None:
        if self._deaf:
            return
        try:
            key = self._loaders.number(loader)
            if self.batch_elements and self.batch_elements[-1][0] != key:
                self._since_step = 0
                self.after_batches.clear()
            self.batch_elements.append((key, elements))
            # The first batch after a step or of another loader follows no batch, so its reading would say nothing.
            self._since_step += 1
            number = self._since_step - 1
            if number >= 1 and self.after_batches.wants(number) and self._due(number):
                found = self._read(None)
                if found is not None:
                    self.after_batches.add(number, found.allocated)
        except Exception as error:  # noqa: BLE001 - training goes on
            self._give_up(error)

    def _due(self, number: int) -> bool:
        return number <= ALWAYS or time.perf_counter() >= self._next_at

    def _read(self, optimizer: Any) -> Reading | None:
        begin = time.perf_counter()
        found = reading(_cuda_index(optimizer) if optimizer is not None else _index_of(self._device))
        end = time.perf_counter()
        self._next_at = end + COST_FACTOR * (end - begin)
        if found is None:
            return None
        if self._device and found.device != self._device:
            self.after_steps.clear()  # numbers of two devices make no series
            self.in_step_peak, self._last = None, None
        self._device = found.device
        if optimizer is not None:
            self._note_peak(found)
            self._last, self._last_step = found, self.step
        return found

    def _note_peak(self, found: Reading) -> None:
        """Take a peak that rose since the last reading for that of the steps between; nobody's counter is reset."""
        before = self._last
        if before is not None and found.peak > before.peak:
            # What piled up in steps that nobody read lay there before the last of them began.
            steps = max(1, self.step - self._last_step)
            grown = max(0, found.allocated - before.allocated) * (steps - 1) // steps
            self.in_step_peak = max(self.in_step_peak or 0, found.peak - before.allocated - grown)
        elif before is None and found.peak > self._start_peak.get(found.device, 0):
            self.in_step_peak = found.peak - found.allocated

    def _give_up(self, error: Exception) -> None:
        self._deaf = True  # the hooks stay until ``stop``: torch is walking through its list of them
        self._failed(error)


def _undo_postponed() -> None:
    if not _in_a_step():
        while _postponed:
            _postponed.pop(0)()


def _calling() -> frozenset[str]:
    """Return the names of the functions that this thread is in, innermost and this one's callers included."""
    names: set[str] = set()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return frozenset(names)


def _in_a_step() -> bool:
    """Tell whether torch's code around an optimizer's step is running in this thread."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_filename.replace("\\", "/").endswith(_OPTIMIZERS):
            return True
    return False


def _in_post_hooks() -> bool:
    """Tell whether torch is calling the hooks after an optimizer's step in this thread."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        # The variable of torch's loop: it is there once the first hook was taken.
        if frame.f_code.co_filename.replace("\\", "/").endswith(_OPTIMIZERS) and "post_hook" in frame.f_locals:
            return True
        frame = frame.f_back
    return False


def reading(cuda_index: int | None) -> Reading | None:
    """Return a look at the simulated device if one is active, else at a CUDA device in use; None where neither is."""
    simulated = active.current()
    if simulated is not None:
        return Reading(simulated_key(simulated), int(simulated.current_bytes), int(simulated.peak_bytes))
    found = None if cuda_index is None else framework.allocated(cuda_index)
    return None if found is None else Reading(f"cuda:{cuda_index}", *found)


def readings() -> list[Reading]:
    """Return a look at every device that training could use in this process now."""
    found = [reading(None)] if active.current() is not None else [reading(index) for index in framework.cuda_indices()]
    return [one for one in found if one is not None]


def last_readings() -> list[Reading]:
    """Return the same after a failure has left the simulated device, whose counters stay readable."""
    used = active.last()
    if used is not None and active.current() is None:
        return [*readings(), Reading(simulated_key(used), int(used.current_bytes), int(used.peak_bytes))]
    return readings()


def simulated_key(device: Any) -> str:
    """Return what tells one simulated device of this process from another."""
    return f"simulated:{device.serial}"


def _cuda_index(optimizer: Any) -> int | None:
    """Return the CUDA device of an optimizer's first parameter: the current device may be another."""
    for group in optimizer.param_groups[:1]:
        for parameter in group["params"][:1]:
            device = parameter.device
            return int(device.index or 0) if device.type == "cuda" else None
    return None


def _index_of(device: str) -> int | None:
    kind, _, index = device.partition(":")
    return int(index) if kind == "cuda" else None
