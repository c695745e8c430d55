"""Mirroring a run from the store to a tracker: what is read, and when. One way: nothing comes back into the store.

Everything comes from the store, where secrets have been taken out already; no live object of training is looked at. The
tracker's copy is a copy: a tag there says what this store had on record, and no recovery, list or verdict reads it.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from watcherml.adapters.told import failure_tags, flat, recovery
from watcherml.errors import InvalidValue
from watcherml.recorder import ranks
from watcherml.recorder.run import Run
from watcherml.store import points
from watcherml.store.runs import Row
from watcherml.store.storage import Storage

PAGE_POINTS = 1_000
MOST_RESULT_CHARACTERS = 10 * 2**20
RESULT_FILE = "recovery-result.json"
# How often a follower looks whether a run has ended, of its own process or in the store; what is waited for it at most.
_LOOK_SECONDS, _LOOK_IN_STORE_SECONDS = 0.5, 5.0
_EXIT_SECONDS = 10.0


@dataclass(frozen=True)
class Picture:
    """What the store says of one run: its row, parameters and tags as text, and its recoveries' results by campaign."""

    run: Row
    params: dict[str, str]
    tags: dict[str, str]
    results: dict[str, str]

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return bool(self.run["status"] != "running")

    def fingerprint(self, last_point: int) -> str:
        """Return what changes if and only if a mirror of it would."""
        said = [self.params, self.tags, sorted(self.results), last_point]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def look(storage: Storage, run_id: str) -> Picture:
    """Return the picture of a run; raises ``NotFound`` if the store has none of that id."""
    storage.settle()
    row = storage.get_run(run_id)
    told = recovery(storage, run_id)
    tags = {
        "watcherml.run_id": run_id,
        "watcherml.project": row["project"],
        "watcherml.status": row["status"],
        "watcherml.end_reason": row.get("end_reason") or "",
        "watcherml.device": str((row.get("device") or {}).get("kind", "none")),
        "watcherml.commit": str((row["facts"].get("git") or {}).get("commit") or ""),
        "watcherml.dataset": str((row["facts"].get("dataset") or {}).get("fingerprint") or ""),
        **failure_tags(storage, run_id),
        **told.tags,
    }
    small = {name: text for name, text in told.results.items() if len(text) <= MOST_RESULT_CHARACTERS}
    return Picture(row, flat(row["config"]), {name: text for name, text in tags.items() if text}, small)


def pages(storage: Storage, run_id: str, after: int = 0) -> Iterator[list[Row]]:
    """Yield the metric points behind the point ``after`` in pages, in the order in which they were logged."""
    storage.fold(run_id)
    while True:
        with storage.database.reading() as connection:
            page = points.page(connection, run_id, after=after, limit=PAGE_POINTS)
        if not page:
            return
        after = page[-1]["point"]
        yield page


@dataclass
class Sink(ABC):
    """Mirrors runs of a store to a tracker. Mirroring again adds what is new and repeats nothing."""

    storage: Storage
    every_seconds: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _warned: bool = field(default=False, repr=False)

    def mirror(self, run_id: str) -> str | None:
        """Bring the tracker up to what the store has of a run now, and return the tracker's id of it.

        A tracker that cannot be reached or refuses is one warning, and None; the store is unchanged and mirroring again
        makes up for it. Raises ``NotFound`` for a run that the store does not have.
        """
        self.storage.get_run(run_id)
        try:
            with self._lock:
                return self._send(run_id)
        except Exception as error:  # noqa: BLE001 - a tracker is never a reason to end training
            self._warn(run_id, error)
            return None

    def follow(self, run: Run | str, *, exit_seconds: float = _EXIT_SECONDS) -> Following:
        """Mirror a run in the background until it has ended, then once more; returns the handle.

        ``run`` is a run of this process, or the id of any run in the store. In a job of several ranks only rank 0
        mirrors. At the end of the process, so many seconds at most are waited for the last mirroring.
        """
        return Following(self, run, self.every_seconds, exit_seconds)

    @abstractmethod
    def _send(self, run_id: str) -> str:
        """Mirror a run and return the tracker's id of it; raises what the tracker raises."""

    def _warn(self, run_id: str, error: Exception) -> None:
        if self._warned:
            return
        self._warned = True
        said = f"{type(error).__name__}: {error}".rstrip(". ")
        text = f"watcherml: {type(self).__name__} could not mirror run {run_id}: {said}"
        more = ". The local store is whole; mirror(run_id) makes up for it."
        # Warnings may have been turned into errors, and a hook of the user's may raise anything.
        with contextlib.suppress(Exception):
            warnings.warn(text[:1_500] + more, RuntimeWarning, stacklevel=3)


class Following:
    """Mirrors one run from a thread of its own. Losing the handle changes nothing."""

    def __init__(self, sink: Sink, run: Run | str, every_seconds: float | None, exit_seconds: float) -> None:
        self._sink, self._run, self._every = sink, run, every_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="watcherml-mirror", daemon=True)
        place = ranks.here()
        if place is None or place.rank == 0:
            self._thread.start()
            atexit.register(self.close, exit_seconds)

    @property
    def run_id(self) -> str:
        """The run that is followed."""
        return self._run if isinstance(self._run, str) else self._run.run_id

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the run's end and its last mirroring; returns whether that is done."""
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def close(self, timeout_seconds: float = _EXIT_SECONDS) -> bool:
        """Mirror what there is now and follow no longer; returns whether it came to that in time, and warns if not."""
        self._stop.set()
        done = self.wait(timeout_seconds)
        if not done:
            self._sink._warn(self.run_id, TimeoutError(f"not done within {timeout_seconds:g} s, and not waited for"))
        atexit.unregister(self.close)
        return done

    def _work(self) -> None:
        since, look_seconds = 0.0, _LOOK_SECONDS if isinstance(self._run, Run) else _LOOK_IN_STORE_SECONDS
        while not self._has_ended() and not self._stop.wait(look_seconds):
            since += look_seconds
            if self._every is not None and since >= self._every:
                since = 0.0
                self._mirror()
        self._mirror()
        atexit.unregister(self.close)

    def _has_ended(self) -> bool:
        if isinstance(self._run, Run) and self._run.status in ("new", "running"):
            return False
        try:  # a run knows that it ends before its ending is on record
            self._sink.storage.settle()
            return bool(self._sink.storage.get_run(self.run_id)["status"] != "running")
        except Exception:  # noqa: BLE001 - a store that is locked or gone for now is asked again
            return False

    def _mirror(self) -> None:
        try:
            self._sink.mirror(self.run_id)
        except Exception as error:  # noqa: BLE001 - a thread of ours must not be seen by training
            self._sink._warn(self.run_id, error)


def storage_of(storage: Storage | str | os.PathLike[str] | None) -> Storage:
    """Return a store by its handle, its folder, or the usual rule."""
    return storage if isinstance(storage, Storage) else Storage(storage)


def check_seconds(value: Any) -> float | None:
    """Return an interval in seconds, None for none; raises ``InvalidValue`` for anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise InvalidValue("every_seconds", expected="a number above 0, or None for the end only", got=repr(value)[:80])
    return float(value)
