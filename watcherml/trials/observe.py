"""What a worker sees of the training itself: which controls took effect, and what makes it another update."""

from __future__ import annotations

import sys
from typing import Any

from watcherml.protocol.proposal import ALLOCATOR, ALLOCATOR_VARIABLES, UpdateTrait
from watcherml.protocol.request import TrialRequest
from watcherml.protocol.result import KnobReading
from watcherml.recorder import framework
from watcherml.recorder.device_memory import MemoryLog
from watcherml.recorder.late import when_imported
from watcherml.trials.knobs import readings
from watcherml.trials.seen import Seen
from watcherml.trials.watching import Watching


class Traits:
    """Watches for BatchNorm layers being built; in-batch negatives and token counts cannot be seen from here."""

    def __init__(self) -> None:
        self._seen: set[UpdateTrait] = set()

    def watch(self) -> None:
        """Watch from now on, also where torch is imported later."""
        when_imported("torch.nn.modules.batchnorm", self._attach)

    def _attach(self, module: Any) -> None:
        layer = module._BatchNorm
        build = layer.__init__

        def __init__(this: Any, *args: Any, **options: Any) -> None:
            self._seen.add("batch_norm")
            build(this, *args, **options)

        layer.__init__ = __init__

    @property
    def seen(self) -> tuple[UpdateTrait, ...]:
        """What was met so far, in alphabetical order."""
        return tuple(sorted(self._seen))


class Observer:
    """What one trial's process is watched for; ``memory`` is its run's memory log, where there is a run.

    The effect of changes is watched where there are any: the control changes nothing.
    """

    def __init__(self, request: TrialRequest, memory: MemoryLog | None = None) -> None:
        self._request = request
        self._traits = Traits()
        self._seen = Seen()
        self.memory = memory

    def watch(self) -> None:
        """Watch from now on, also where torch is imported later."""
        self._traits.watch()
        if self._request.changes:
            Watching(self._seen).start()

    @property
    def seen(self) -> tuple[UpdateTrait, ...]:
        """The traits that were met so far, in alphabetical order."""
        return self._traits.seen

    def knobs(self) -> tuple[KnobReading, ...]:
        """Return one reading for each capability that was changed, the environment's included."""
        wanted = self._request.environment.get(ALLOCATOR_VARIABLES[0])
        allocator = () if wanted is None else (_allocator(wanted),)
        changes = tuple(one for one in self._request.changes or () if not allocator or one.capability != ALLOCATOR)
        return (*readings(changes, self._seen if "torch" in sys.modules else None), *allocator)


def _allocator(wanted: str) -> KnobReading:
    """Compare with the settings the allocator itself reports: it parses them once and ignores what it does not know."""
    if framework.cuda_in_use() is None:
        return KnobReading(ALLOCATOR, "not_observable", "no CUDA context in the trial")
    try:
        settings = sys.modules["torch"].cuda.memory._snapshot()["allocator_settings"]
    except Exception as error:  # noqa: BLE001 - a private name; its absence is a finding, not a failure
        return KnobReading(ALLOCATOR, "not_observable", f"{type(error).__name__}: {error}"[:300])
    on = bool(settings.get("expandable_segments"))
    asked = "expandable_segments:true" in wanted.lower()
    return KnobReading(ALLOCATOR, "in_effect" if on == asked else "not_in_effect", f"expandable_segments: {on}")
