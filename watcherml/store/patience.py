"""How long a thread waits for a store that somebody else keeps locked.

Whoever has time waits ``USUAL_SECONDS`` for each operation. A thread that must not be held up works under a
``Patience``, which all its operations share: what one has waited, the next has no more, until the store answers again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

USUAL_SECONDS = 30.0
# Even without patience one moment: two writers of one store meet all the time.
LEAST_SECONDS = 0.05


class Patience:
    """So many seconds of waiting in all. Threads may share one."""

    def __init__(self, seconds: float = USUAL_SECONDS) -> None:
        self._most = self._left = seconds

    @property
    def left(self) -> float:
        """Seconds that the next operation may wait."""
        return max(self._left, LEAST_SECONDS)

    def hurry(self, seconds: float) -> None:
        """Allow no more than this from now on; who waits at this moment notices."""
        self._most = min(self._most, seconds)
        self._left = min(self._left, seconds)

    def waited(self, seconds: float) -> None:
        """Take off what somebody has waited in vain."""
        self._left = max(0.0, self._left - seconds)

    def answered(self) -> None:
        """Have all the patience again: the store is to be had."""
        self._left = self._most

    @contextmanager
    def used(self) -> Iterator[None]:
        """Wait for locks with this patience in this thread, for the block; the stricter of two nested ones counts."""
        before = current()
        _thread.patience = self if before is None or self.left <= before.left else before
        try:
            yield
        finally:
            _thread.patience = before


class _Thread(threading.local):
    patience: Patience | None = None


_thread = _Thread()


def current() -> Patience | None:
    """Return this thread's patience, if it has a limit of its own."""
    return _thread.patience


def seconds_left() -> float:
    """Return how long this thread may wait for a lock."""
    patience = current()
    return USUAL_SECONDS if patience is None else min(USUAL_SECONDS, patience.left)


class Wait:
    """One wait for a lock: ``over`` tells whether to give up, ``end`` what became of it."""

    def __init__(self, seconds: float | None = None) -> None:
        self._began = time.monotonic()
        self._seconds = seconds

    @property
    def over(self) -> bool:
        """Whether this thread has waited as long as it may."""
        left = seconds_left() if self._seconds is None else min(self._seconds, seconds_left())
        return time.monotonic() - self._began > left

    def end(self, answered: bool) -> None:
        """Tell the thread's patience."""
        patience = current()
        if patience is None:
            return
        if answered:
            patience.answered()
        else:
            patience.waited(time.monotonic() - self._began)
