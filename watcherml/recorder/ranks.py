"""One job of several processes is one run: rank 0 writes it, the other ranks attach to it.

Where this process stands comes from torch.distributed if a process group is initialised here, else from what launchers
set: RANK and WORLD_SIZE (torchrun, DeepSpeed, Accelerate), or LOCAL_RANK and WORLD_SIZE on the first node (Lightning).
Rank 0 leaves a note in the store's folder ``ranks``, keyed by what the ranks of one job have in common; another rank
finds the run through it, or takes the open run of the process that started it. Nobody ever waits for a collective.

RANK and WORLD_SIZE may also be left over in a shell or a container, or rank 0 may record elsewhere: what a rank logs is
in a journal of its own until rank 0 has been found, and becomes a run of its own where it never is.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from watcherml.platform import ProcessId, boot_id, is_alive, this_process, write_atomically
from watcherml.store.storage import Storage

FOLDER = "ranks"
# Ranks of a job start together; one that comes earlier than rank 0 looks again this long, and once more if it fails.
MEET_SECONDS = 2.0
MEET_AFTER_FAILURE_SECONDS = 5.0
# A rank that has met nobody looks on; where only two variables speak of a job, it is on its own after this long.
ALONE_AFTER_SECONDS = 60.0
_LOOK_EVERY_SECONDS = 0.05
_LOOK_ON_EVERY_SECONDS = 1.0
_MOST_KEPT = 1_000
_CLOCKS_DIFFER_SECONDS = 60.0
_LOADED_AT = time.time()
_FORGOTTEN_AFTER_SECONDS = 86_400.0
_JOB = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Place:
    """Where this process stands in a job of ``world_size`` processes; ``local_rank`` is None where unknown."""

    rank: int
    world_size: int
    local_rank: int | None = None

    def to_data(self) -> dict[str, Any]:
        """Return the place as plain data."""
        return asdict(self)


def here(environment: Mapping[str, str] | None = None) -> Place | None:
    """Return this process' place; None for a process on its own (also a job of one)."""
    env = os.environ if environment is None else environment
    world, local = _number(env.get("WORLD_SIZE")), _number(env.get("LOCAL_RANK"))
    group = _initialised_group()
    if group is not None:
        rank: int | None
        rank, world = group
    else:
        rank = _number(env.get("RANK"))
        if rank is None and env.get("NODE_RANK", "0") == "0":
            rank = local
    if rank is None or world is None or not 0 <= rank < world or world < 2:
        return None
    return Place(rank, world, local)


def _initialised_group() -> tuple[int, int] | None:
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank()), int(distributed.get_world_size())
    except Exception:  # noqa: BLE001 - a half-imported torch, or a group that has just been destroyed
        return None
    return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


_runs_started = itertools.count()


def announce(storage: Storage, run_id: str) -> None:
    """Leave rank 0's note for the ranks that start their own run of the same number; raises OSError."""
    folder = storage.path / FOLDER
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _tidy(folder)
    note = {"run_id": run_id, "process": list(this_process()), "written_at": time.time()}
    # Every rank runs the same program, so that counting the runs that each has started tells them apart.
    write_atomically(_path(folder, next(_runs_started)), json.dumps(note).encode())


def is_certain() -> bool:
    """Tell whether this process surely has a rank 0 beside it: an initialised process group, or an elastic launcher."""
    return "TORCHELASTIC_RUN_ID" in os.environ or _initialised_group() is not None


class Follower:
    """Finds the run that rank 0 records, and leaves this rank's failure there.

    ``lock`` is held by whoever decides between that run and one of its own; ``kept`` is what to do in the second case.
    """

    def __init__(self, storage: Storage, place: Place) -> None:
        self._storage, self.place = storage, place
        self._ordinal = next(_runs_started)
        self._told = False
        self._settled = threading.Event()
        self.leader: str | None = None
        self.lock = threading.RLock()
        self.kept: list[Callable[[], object]] = []

    def keep(self, action: Callable[[], object]) -> None:
        """Keep an action for a run of its own; rank 0 does the same for the job's run."""
        if self.leader is None and len(self.kept) < _MOST_KEPT:
            self.kept.append(action)

    def look_on(self, settle: Callable[[bool], None]) -> None:
        """Look for rank 0 in the background; calls ``settle``, with True where there is no reason to wait any longer.

        Ends when ``settled`` is called, or with the process. Raises RuntimeError where there can be no more threads.
        """
        threading.Thread(target=self._look_on, args=(settle,), name="watcherml-rank", daemon=True).start()

    def _look_on(self, settle: Callable[[bool], None]) -> None:
        deadline = time.monotonic() + ALONE_AFTER_SECONDS
        while not self._settled.wait(_LOOK_ON_EVERY_SECONDS):
            if _noted(self._storage.path / FOLDER, self._ordinal) is not None:
                settle(False)
            elif time.monotonic() >= deadline and not is_certain():
                settle(True)

    def settled(self) -> None:
        """Stop looking: it is known which run this rank belongs to."""
        self._settled.set()

    def tell(self) -> None:
        """Warn, once, that no rank 0 records here, and say what to do about it."""
        if self._told:
            return
        self._told = True
        place = self.place
        text = (
            f"WatcherML takes this process for rank {place.rank} of {place.world_size}, as RANK and WORLD_SIZE say (or"
            f" LOCAL_RANK and the process group), and finds no run of its rank 0 in {self._storage.path}. What it logs"
            " is kept, and becomes a run of its own if no rank 0 appears. If this process trains alone, unset RANK and"
            " WORLD_SIZE; if rank 0 records elsewhere, give all ranks the same store (WATCHERML_DIR)."
        )
        with contextlib.suppress(Exception):  # warnings may have been turned into errors
            warnings.warn(text, RuntimeWarning, stacklevel=_level_of_caller())

    def find(self, seconds: float) -> str | None:
        """Return the run of this job's rank 0, looking for it up to ``seconds``; None if there is none to be found."""
        deadline = time.monotonic() + seconds
        while self.leader is None:
            self.leader = _noted(self._storage.path / FOLDER, self._ordinal)
            if self.leader is None and time.monotonic() >= deadline:
                self.leader = _of_parent(self._storage)
                break
            if self.leader is None:
                time.sleep(_LOOK_EVERY_SECONDS)
        return self.leader

    def note_failure(self, run_id: str, error: str) -> None:
        """Say in the run's facts that this rank has failed, and with what type of exception."""
        facts = {"error": error[:200], "at": self._storage.clock(), **self.place.to_data()}
        self._storage.runs.note(run_id, {f"rank {self.place.rank}": facts})


def _level_of_caller() -> int:
    """Return the stack level, for a warning of the caller's, of the first function outside this package."""
    package, level = __name__.partition(".")[0], 1
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    return level


def _noted(folder: Path, ordinal: int) -> str | None:
    try:
        document = json.loads(_path(folder, ordinal).read_bytes())
        run_id, written_at = str(document["run_id"]), float(document["written_at"])
        writer = ProcessId(*document["process"])
        # The note of an earlier job with the same address and port: its rank 0 is dead, and was before this one began.
        if writer.boot_id != boot_id():  # another machine or container: its processes cannot be asked
            return run_id if written_at >= _LOADED_AT - _CLOCKS_DIFFER_SECONDS else None
        return run_id if written_at >= _LOADED_AT or is_alive(writer) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _path(folder: Path, ordinal: int) -> Path:
    return folder / f"{_job_key()}.{ordinal}.json"


def _job_key() -> str:
    """Return what the ranks of this job share: their launcher's names, or the process that started them all."""
    parts = [os.environ.get(name, "") for name in _JOB]
    if not parts[-1]:
        parts += [boot_id(), str(os.getppid())]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:24]


def _of_parent(storage: Storage) -> str | None:
    """Return the open run of the process that started this one: where rank 0 itself starts the others.

    An elastic agent is no rank, and a run that is open above it belongs to somebody else, a notebook for example.
    """
    import psutil

    if "TORCHELASTIC_RUN_ID" in os.environ or not storage.exists:
        return None
    try:
        parent = psutil.Process(os.getppid())
        return storage.runs.running_in(ProcessId(parent.pid, parent.create_time(), boot_id()))
    except psutil.Error:
        return None


def _tidy(folder: Path) -> None:
    for old in folder.glob("*.json"):
        try:
            if old.stat().st_mtime < time.time() - _FORGOTTEN_AFTER_SECONDS:
                old.unlink()
        except OSError:
            pass  # another job's rank 0 was first
