"""What became of a run whose process no longer speaks: judged from its row and from what the system still knows."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from watcherml.errors import DamagedRow
from watcherml.platform import ProcessId, boot_id, is_alive, signal_name
from watcherml.store.sound import sound

# A run beats at least every 30 seconds; with clocks of two machines apart by a minute it is still not called dead.
SILENT_SECONDS = 120.0
_UNKNOWN = "its process is gone; how it ended is not known"


def judge(row: Any, alive: Callable[[ProcessId], bool], now: float) -> tuple[str, str] | None:
    """Return status and reason of a run that counts as running but is not; None while it may be.

    ``row`` has pid, process_started, boot_id, heartbeat_at and facts, as ``sound`` returns them. A process of another
    machine, container or boot cannot be asked; its silence decides. Where another rank of the job has failed on record,
    that is the failure.
    """
    process = ProcessId(row["pid"], row["process_started"], row["boot_id"])
    if process.boot_id != boot_id():
        silent = now - row["heartbeat_at"]
        if silent < SILENT_SECONDS:
            return None
        reason = "it fell silent on another machine, in another container or before a restart; no signal is known"
    elif alive(process):
        return None
    else:
        reason = how_ended(process)
    failed = _failed_ranks(row["facts"])
    return ("failed", f"{failed}; rank 0: {reason}") if failed else ("killed", reason)


def in_use(connection: sqlite3.Connection) -> bool:
    """Tell whether a run that may still be going on is recorded in a store. Raises OperationalError where it is busy.

    Who changes the journal mode meanwhile would pull it from under that run's process.
    """
    try:
        rows = connection.execute(
            "SELECT pid, process_started, boot_id, heartbeat_at, facts FROM runs WHERE status = 'running'"
        ).fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return False
        raise
    return any(_may_go_on(row) for row in rows)


def _may_go_on(row: Any) -> bool:
    try:
        return judge(sound("runs", row), is_alive, time.time()) is None
    except DamagedRow:
        return False  # nobody can tell whose process it is; the others decide


def how_ended(process: ProcessId) -> str:
    """Return how a process ended, as long as nobody has collected it: by which signal, or with which exit code."""
    status = _wait_status(process)
    if status is None:
        return _UNKNOWN
    if os.WIFSIGNALED(status):
        return f"killed by {signal_name(os.WTERMSIG(status))}"
    return f"its process exited with code {os.WEXITSTATUS(status)} and did not end the run"


def _wait_status(process: ProcessId) -> int | None:
    if not sys.platform.startswith("linux"):
        return None
    import psutil

    try:
        found = psutil.Process(process.pid)
        if found.status() != psutil.STATUS_ZOMBIE or abs(found.create_time() - process.started) >= 1.0:
            return None
        # The last field of a zombie's stat is its wait status (proc(5): exit_code).
        return int(Path(f"/proc/{process.pid}/stat").read_text().rsplit(None, 1)[1])
    except (psutil.Error, OSError, ValueError, IndexError):
        return None


def _failed_ranks(facts: Mapping[str, Any]) -> str:
    found = [(key, value) for key, value in facts.items() if key.startswith("rank ")]
    return "; ".join(f"{key} failed: {value.get('error')}" for key, value in sorted(found) if isinstance(value, dict))
