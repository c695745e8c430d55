"""CPU time and memory of this process and of everything it has started: data loader workers, compilers, shells."""

from __future__ import annotations

import time
from typing import Any

import psutil


class ProcessTree:
    """Readings of the processes below the one that made this; CPU is percent of one core since the last reading.

    The kernel adds a child's CPU time to its parent's when the child is collected, so that children which came and went
    between two readings count too. Resident memory is summed: pages that processes share count once for each of them.
    """

    def __init__(self) -> None:
        self._root = psutil.Process()
        self._own_seconds, self._tree_seconds, self._at = 0.0, 0.0, 0.0
        self.read()

    def read(self) -> dict[str, Any]:
        """Return cpu_percent, rss_bytes, tree_cpu_percent, tree_rss_bytes; raises ``psutil.Error``."""
        own_seconds, below_seconds, own_rss = _usage(self._root)
        tree_seconds, tree_rss = own_seconds + below_seconds, own_rss
        for child in self._root.children(recursive=True):
            try:
                seconds, below, rss = _usage(child)
            except psutil.Error:
                continue  # gone meanwhile: its time is its parent's at the next reading
            tree_seconds += seconds + below
            tree_rss += rss
        now = time.monotonic()
        passed = max(now - self._at, 1e-3)
        found = {
            "cpu_percent": _percent(own_seconds - self._own_seconds, passed),
            "rss_bytes": own_rss,
            "tree_cpu_percent": _percent(tree_seconds - self._tree_seconds, passed),
            "tree_rss_bytes": tree_rss,
        }
        self._own_seconds, self._tree_seconds, self._at = own_seconds, tree_seconds, now
        return found


def _usage(process: psutil.Process) -> tuple[float, float, int]:
    with process.oneshot():
        times = process.cpu_times()
        # Systems that do not count collected children have no such fields, or zeros in them.
        below = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
        return times.user + times.system, below, int(process.memory_info().rss)


def _percent(seconds: float, passed: float) -> float:
    # A child that nobody collects takes its time with it; a share below nothing would be nonsense.
    return round(100 * max(seconds, 0.0) / passed, 1)
