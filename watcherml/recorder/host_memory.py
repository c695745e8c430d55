"""Host memory around a failure: who was killed for it, how full shared memory is, which children died and how."""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path
from typing import Any

import psutil

_SHARED = Path("/dev/shm")
# The words of torch's DataLoader.
_KILLED = re.compile(r"\(pid (\d+)\) (?:is|was) killed by signal: ([\w ]+)")
# Version 1 writes a number near 2**63 where there is no limit.
_NO_LIMIT_BYTES = 2**60


class HostWatch:
    """Made when a run starts, so that what is counted for the whole control group can be told apart by time."""

    def __init__(self) -> None:
        self._kills = oom_kills()

    def facts(self) -> dict[str, Any]:
        """Return kills for memory in this control group since the start, and free bytes of host and shared memory.

        A value is None where the system does not tell.
        """
        found: dict[str, Any] = {
            "cgroup_oom_kills": self.kills(),
            "shared_memory_free_bytes": None,
            "shared_memory_total_bytes": None,
        }
        found.update(cgroup_limit())
        with contextlib.suppress(OSError):
            usage = shutil.disk_usage(_SHARED)
            found.update(shared_memory_free_bytes=usage.free, shared_memory_total_bytes=usage.total)
        return found

    def kills(self) -> int | None:
        """Return how many processes of this control group were killed for memory since the start; None if unknown."""
        now = oom_kills()
        return None if now is None or self._kills is None else now - self._kills


def oom_kills(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return how many processes the kernel has killed for memory in this process' control group; None if unknown.

    Source: ``oom_kill`` of ``memory.events`` (control groups version 2) or ``memory.oom_control`` (version 1, from
    Linux 4.13 on).
    """
    for folder in _groups(root):
        for name in ("memory.events", "memory.oom_control"):
            try:
                lines = (folder / name).read_text().splitlines()
                return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
            except (OSError, ValueError, StopIteration):
                continue
    return None


def cgroup_limit(root: Path = Path("/sys/fs/cgroup")) -> dict[str, int]:
    """Return ``cgroup_limit_bytes`` and ``cgroup_used_bytes`` of a group that has a limit; empty where none has."""
    for folder in _groups(root):
        for limit_name, used_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            with contextlib.suppress(OSError, ValueError):
                limit = (folder / limit_name).read_text().strip()
                if limit.isdigit() and int(limit) < _NO_LIMIT_BYTES:
                    used = int((folder / used_name).read_text())
                    return {"cgroup_limit_bytes": int(limit), "cgroup_used_bytes": used}
    return {}


def dead_children() -> list[dict[str, Any]]:
    """Return the children that have died and that nobody has collected: process id and name."""
    found = []
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if child.status() == psutil.STATUS_ZOMBIE:
                    found.append({"pid": child.pid, "name": child.name()[:80]})
    return found[:20]


def killed_child(message: str) -> dict[str, Any] | None:
    """Return process id and signal that a DataLoader's message names for a dead worker; None if it names none."""
    match = _KILLED.search(message)
    return None if match is None else {"pid": int(match.group(1)), "signal": match.group(2).strip()}


def _groups(root: Path) -> list[Path]:
    """Return the folder of this process' control group, then the root as a container sees it."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            number, controllers, place = line.split(":", 2)
            if number == "0":
                found.append(root / place.lstrip("/"))
            elif "memory" in controllers.split(","):
                found.append(root / "memory" / place.lstrip("/"))
    return [*found, root, root / "memory"]
