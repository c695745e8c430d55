"""What the process that records a run does beside training: the run's row, facts, samples, artifacts, and its end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from watcherml.errors import StoreError
from watcherml.platform import this_process
from watcherml.recorder import gather, host_memory, life, ranks, receipt, redact
from watcherml.recorder.artifacts import Artifacts
from watcherml.recorder.device_memory import MemoryLog
from watcherml.recorder.peak import DeviceWatch
from watcherml.recorder.progress import is_watched
from watcherml.recorder.sampler import Sampler
from watcherml.store import aside
from watcherml.store.patience import Patience
from watcherml.store.runs import NewRun

if TYPE_CHECKING:
    from watcherml.recorder.run import Run

T = TypeVar("T")
_ARTIFACTS_TIMEOUT_SECONDS = 10.0
# What a locked store may cost training in all, until it answers again; and threads that training waits for at the end.
PATIENCE_SECONDS = 5.0
_LAST_PATIENCE_SECONDS = 2.0
# Less than the end of a run waits for its facts: those that the store refuses are kept, and not cut short.
_FACTS_PATIENCE_SECONDS = 1.8


class Recording:
    """Belongs to one run. A part that fails is one of the run's problems and leaves the others alone."""

    def __init__(self, run: Run, problems: life.Problems) -> None:
        self._run, self._problems, self._safely = run, problems, problems.safely
        self.sampler = Sampler(self._deliver, problems.note, run.storage.clock)
        self._patience, self._background = Patience(PATIENCE_SECONDS), Patience()
        self._facts_patience = Patience(_FACTS_PATIENCE_SECONDS)
        self.artifacts = Artifacts(run.storage, run.run_id, problems, self._background)
        self.on_record = False
        self._room: aside.Room | None = None
        self._ended = False
        self.memory = MemoryLog(problems.note)
        self.host: host_memory.HostWatch | None = None
        self._started_at = 0.0
        self._watch: DeviceWatch | None = None
        self._gathering: gather.Gathering | None = None

    def start(self, place: ranks.Place | None) -> None:
        """Put the run on record, collect facts in the background and start sampling."""
        run = self._run
        self.began()
        self._watch = self._safely(DeviceWatch)
        self._safely(self.listen)
        self.briefly(self.add_row)
        if place is not None:
            self._safely(lambda: ranks.announce(run.storage, run.run_id))
            self.briefly(lambda: run.storage.runs.note(run.run_id, {"job": place.to_data()}))
        self._gathering = self._safely(self._start_gathering)
        self._safely(self.sampler.start)

    def began(self) -> None:
        """Take the time at which the run starts, once."""
        self._started_at = self._started_at or self._safely(self._run.storage.clock) or 0.0

    def listen(self) -> None:
        """Follow the device's memory from now on."""
        self.host = host_memory.HostWatch()
        self.memory.start()

    def join_facts(self) -> None:
        """Wait a little until git and packages have been collected; what takes longer is cut short."""
        if self._gathering is not None:
            self._gathering.join()

    def stop(self, *, patient: bool) -> None:
        """Stop sampling and wait for what is still going on; without patience not for checksums."""
        self._background.hurry(_LAST_PATIENCE_SECONDS)
        self._safely(self.memory.stop)
        self._safely(self.sampler.stop)
        self.briefly(self.note_device)
        self.briefly(self.sampler.last)
        show = bool(self._safely(lambda: not self._run.quiet and is_watched(sys.stderr)))
        self._safely(lambda: self.artifacts.finish(_ARTIFACTS_TIMEOUT_SECONDS if patient else 0.0, show))
        self.briefly(self.join_facts)

    def receipt(self) -> dict[str, Any] | None:
        """Make the receipt of a run that has ended well and put it on record; None if its ending is put aside."""
        if not self._ended:
            return None
        run, runs = self._run, self._run.storage.runs
        peak = None if self._watch is None else self._watch.peak(runs.largest_samples(run.run_id))
        count = len(runs.artifacts(run.run_id))
        made = receipt.make(runs.get(run.run_id), run.last_metrics, peak, count, self._problems.to_data())
        runs.add_receipt(run.run_id, made)
        return made

    def add_row(self) -> None:
        """Put the run on record, unless it is; a store that refused it is asked again at every heartbeat."""
        if self._room is None:
            self._run.storage.runs.kept.watch(self._run.run_id)
            self._room = aside.Room(self._run.storage.runs.spool_folder, self._run.run_id)
        try:
            if not self.on_record:
                self._run.storage.runs.add(self._row())
                self.on_record = True
        finally:
            with suppress(OSError):
                self._room.reserve()

    def _row(self) -> NewRun:
        run = self._run
        device = None if self._watch is None else self._watch.device()
        return NewRun(
            run.run_id,
            run.project,
            run.role,
            self._started_at or run.storage.clock(),
            this_process(),
            run.config,
            run.lossy_paths,
            run.redacted_paths,
            None if device is None else device.to_data(),
            run.campaign_id,
            run.trial_id,
        )

    def end_row(self, status: str, reason: str) -> None:
        """Close the run's row; what could not be recorded is named in its facts.

        What the store does not take now is put aside for whoever opens it next; raises OSError if that fails too.
        """
        run, runs = self._run, self._run.storage.runs
        end: aside.End = {
            "status": status,
            "reason": redact.redact_text(reason[:4_000])[:400],
            "at": self._safely(run.storage.clock) or time.time(),
            "last_step": run.last_step,
        }
        self._safely(self.add_row)
        self._safely(self.retry)
        if self._problems.count:
            self._safely(lambda: runs.note(run.run_id, {"recording_problems": self._problems.to_data()}))
        self._safely(lambda: self._end_in_store(end))
        if not (self._ended and self.on_record) or self._owes:
            self._put_aside(end)  # where that fails as well, what is kept stays in this process
        runs.kept.forget(run.run_id)

    def _end_in_store(self, end: aside.End) -> None:
        self._run.storage.runs.end(self._run.run_id, **end)
        self._ended = True

    def retry(self) -> None:
        """Offer the store again what it has refused; raises ``StoreError`` if it still does."""
        run, kept = self._run, self._run.storage.runs.kept
        if kept.owes(run.run_id):
            run.storage.runs.supply(run.run_id, kept.to_data(run.run_id))
        self.artifacts.retry()

    @property
    def _owes(self) -> bool:
        return bool(self.artifacts.refused()) or self._run.storage.runs.kept.owes(self._run.run_id)

    def _put_aside(self, end: aside.End) -> None:
        run, kept = self._run, self._run.storage.runs.kept
        row = None if self.on_record else self._row().to_row()
        document = {"run": row, **kept.to_data(run.run_id), "artifacts": self.artifacts.refused(), "end": end}
        room = self._room or aside.Room(run.storage.runs.spool_folder, run.run_id)
        path = room.put(document)
        self._problems.note(StoreError(f"the run's ending waits in {path} until the store can be written"))

    def _appear_again(self) -> None:
        """Put a run on record whose store has been removed: its row, its facts, and what comes from now on."""
        run, kept = self._run, self._run.storage.runs.kept
        self.on_record = False
        self.artifacts.appear_again()
        self.add_row()
        held = kept.of(run.run_id)
        git = held.facts.get("git")
        if isinstance(git, dict) and git.get("patch"):
            left = {name: value for name, value in git.items() if name not in ("patch", "patch_is")}
            held.note({"git": {**left, "patch_omitted": "it went with the store that was removed"}}, None)
        run.storage.runs.supply(run.run_id, kept.to_data(run.run_id))

    def ensure_row(self) -> None:
        """Put the run on record again if somebody has removed its store: what follows needs its row."""
        run = self._run
        if self.on_record and not run.storage.runs.beat(run.run_id, run.storage.clock(), run.last_step, None):
            self._appear_again()

    def note_device(self) -> None:
        """Put on record which device the run used, also one that was entered after it started."""
        found = None if self._watch is None else self._watch.news()
        if found is not None:
            self._run.storage.runs.note(self._run.run_id, {}, found.to_data())

    def sample_failure(self) -> None:
        """Take a reading while what failed is still held: memory that a step fills at once is between two others."""
        if self._watch is None:
            return
        sample, gpus = self.sampler.sample()
        held = self._watch.held()
        if held is not None and sample.get("device_allocated_bytes") is None:
            sample = {**sample, "device_kind": "simulated", "device_allocated_bytes": held}
        self._deliver(sample, gpus)

    def _start_gathering(self) -> gather.Gathering:
        run = self._run
        started = gather.Gathering(run.storage, run.run_id, gather.folder(), self._while_gathering)
        started.start()
        return started

    def briefly(self, action: Callable[[], T]) -> T | None:
        """Do it in a thread of training: a store that is locked costs all such calls a few seconds together."""
        with self._patience.used():
            return self._safely(action)

    def _while_gathering(self, action: Callable[[], Any]) -> Any:
        with self._background.used(), self._facts_patience.used():
            return self._safely(action)

    def _deliver(self, sample: dict[str, Any], gpus: list[dict[str, Any]]) -> None:
        run = self._run
        with self._background.used():
            self._safely(lambda: run._spool.renew())
            self.add_row()
            self._safely(self.note_device)
            if not run.storage.runs.beat(run.run_id, sample["at"], run.last_step, sample, gpus):
                self._appear_again()
                run.storage.runs.beat(run.run_id, sample["at"], run.last_step, sample, gpus)
            self.retry()
