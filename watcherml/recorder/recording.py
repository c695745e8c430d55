"""What the process that records a run does beside training: the run's row, facts, samples, artifacts, and its end."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from watcherml.platform import this_process
from watcherml.recorder import gather, host_memory, life, ranks, receipt
from watcherml.recorder.artifacts import Artifacts
from watcherml.recorder.device_memory import MemoryLog
from watcherml.recorder.peak import DeviceWatch
from watcherml.recorder.progress import is_watched
from watcherml.recorder.sampler import Sampler
from watcherml.store.runs import NewRun

if TYPE_CHECKING:
    from watcherml.recorder.run import Run

_GATHER_TIMEOUT_SECONDS = 20.0
_ARTIFACTS_TIMEOUT_SECONDS = 10.0


class Recording:
    """Belongs to one run. A part that fails is one of the run's problems and leaves the others alone."""

    def __init__(self, run: Run, problems: life.Problems) -> None:
        self._run, self._problems, self._safely = run, problems, problems.safely
        self.sampler = Sampler(self._deliver, problems.note, run.storage.clock)
        self.memory = MemoryLog(problems.note)
        self.artifacts = Artifacts(run.storage, run.run_id, problems)
        self.host: host_memory.HostWatch | None = None
        self.on_record = self._sampled = False
        self._started_at = 0.0
        self._watch: DeviceWatch | None = None
        self._gathering: threading.Thread | None = None

    def start(self, place: ranks.Place | None) -> None:
        """Put the run on record, collect facts in the background and start sampling."""
        run = self._run
        self._started_at = self._safely(run.storage.clock) or 0.0
        self._watch = self._safely(DeviceWatch)
        self._safely(self.listen)
        self._safely(self.add_row)
        if place is not None:
            self._safely(lambda: ranks.announce(run.storage, run.run_id))
            self._safely(lambda: run.storage.runs.note(run.run_id, {"job": place.to_data()}))
        self._gathering = self._safely(self._start_gathering)
        self._safely(self.sampler.start)

    def listen(self) -> None:
        """Follow the device's memory from now on."""
        self.host = host_memory.HostWatch()
        self.memory.start()

    def join_facts(self) -> None:
        """Wait until git and packages have been collected."""
        if self._gathering is not None:
            self._gathering.join(_GATHER_TIMEOUT_SECONDS)

    def stop(self, *, patient: bool) -> None:
        """Stop sampling and wait for what is still going on; without patience not for checksums."""
        self._safely(self.memory.stop)
        self._safely(self.sampler.stop)
        self._safely(self.note_device)
        self._safely(self.sampler.last)
        show = not self._run.quiet and is_watched(sys.stderr)
        self._safely(lambda: self.artifacts.finish(_ARTIFACTS_TIMEOUT_SECONDS if patient else 0.0, show))
        self._safely(self.join_facts)

    def receipt(self) -> dict[str, Any]:
        """Make the receipt of a run that has ended well and put it on record."""
        run, runs = self._run, self._run.storage.runs
        peak = None if self._watch is None else self._watch.peak(runs.largest_samples(run.run_id))
        count = len(runs.artifacts(run.run_id))
        made = receipt.make(runs.get(run.run_id), run.last_metrics, peak, count, self._problems.to_data())
        runs.add_receipt(run.run_id, made)
        return made

    def add_row(self) -> None:
        """Put the run on record, unless it is; a store that refused it is asked again at every heartbeat."""
        if self.on_record:
            return
        run = self._run
        device = None if self._watch is None else self._watch.device()
        run.storage.runs.add(
            NewRun(
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
        )
        self.on_record = True

    def end_row(self, status: str, reason: str) -> None:
        """Close the run's row; what could not be recorded is named in its facts."""
        run = self._run
        self._safely(self.add_row)
        if self._problems.count:
            self._safely(lambda: run.storage.runs.note(run.run_id, {"recording_problems": self._problems.to_data()}))
        run.storage.runs.end(run.run_id, status, reason[:400], run.storage.clock(), run.last_step)

    def note_device(self) -> None:
        """Put on record which device the run used, also one that was entered after it started."""
        found = None if self._watch is None else self._watch.news()
        if found is not None:
            self._run.storage.runs.note(self._run.run_id, {}, found.to_data())

    def ensure_sample(self) -> None:
        """Take a reading now if the sampler's thread has not come to its first one: a failure may be that quick."""
        if not self._sampled and self._watch is not None:
            self._deliver(*self.sampler.sample())

    def _start_gathering(self) -> threading.Thread:
        run, folder = self._run, gather.folder()
        thread = threading.Thread(
            target=lambda: self._safely(lambda: gather.gather(run.storage, run.run_id, folder)),
            name="watcherml-facts",
            daemon=True,
        )
        thread.start()
        return thread

    def _deliver(self, sample: dict[str, Any], gpus: list[dict[str, Any]]) -> None:
        run = self._run
        self.add_row()
        self._sampled = True
        self._safely(self.note_device)
        run.storage.runs.beat(run.run_id, sample["at"], run.last_step, sample, gpus)
