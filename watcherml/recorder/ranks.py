"""One job of several processes is one run: rank 0 writes it, the other ranks attach to it.

Where this process stands comes from torch.distributed if a process group is initialised here, else from what launchers
set: RANK and WORLD_SIZE (torchrun, DeepSpeed, Accelerate), or LOCAL_RANK and WORLD_SIZE on the first node (Lightning).
Rank 0 leaves a note in the store's folder ``ranks``, keyed by what the ranks of one job have in common; another rank
finds the run through it, or takes the open run of the process that started it. Nobody ever waits for a collective.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from watcherml.platform import ProcessId, boot_id, is_alive, this_process, write_atomically
from watcherml.store.storage import Storage

FOLDER = "ranks"
# Ranks of a job start together; one that comes earlier than rank 0 looks again this long, and once more if it fails.
MEET_SECONDS = 2.0
MEET_AFTER_FAILURE_SECONDS = 5.0
_LOOK_EVERY_SECONDS = 0.05
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


class Follower:
    """A rank other than 0: it finds the run that rank 0 records and leaves its failure there."""

    def __init__(self, storage: Storage, place: Place) -> None:
        self._storage, self.place = storage, place
        self._ordinal = next(_runs_started)
        self.leader: str | None = None

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
