"""No process is forked while another thread of it is inside SQLite.

A forked child inherits every lock as it stands, but not the threads that would open them again: a child made while the
sampler writes would wait for ever on SQLite's own locks, or write with its state. So a fork waits, a moment, until
nobody is inside.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# A fork does not wait longer than this for a thread that waits for another process itself.
_PATIENCE_SECONDS = 2.0
_gate = threading.RLock()
_stopped = threading.local()


@contextmanager
def kept_out() -> Iterator[None]:
    """Keep forks of this process away for the block; blocks of several threads come one after another."""
    gate = _gate
    with gate:
        yield


def _before() -> None:
    _stopped.by_us = _gate.acquire(timeout=_PATIENCE_SECONDS)


def _after_in_parent() -> None:
    if getattr(_stopped, "by_us", False):
        _gate.release()


def _after_in_child() -> None:
    global _gate
    _gate = threading.RLock()  # whoever held the old one is not here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
