"""What SQLite needs of the process around it: nobody forks, and nobody closes its files, while a thread is inside.

A forked child inherits every lock as it stands, but not the threads that would open them again: a child made while the
sampler writes would wait for ever on SQLite's own locks, or write with what it believes to be locks of its own. So a
fork waits, a moment, until nobody is inside. A child that was forked nevertheless, because somebody stayed inside for
long, does not open the store; what it logs is in its journal, and the parent folds it.

Closing any descriptor of a file gives up all of the process's POSIX locks on it, SQLite's too
(https://www.sqlite.org/howtocorrupt.html, section 2.2). So whoever looks at a database file by hand does it through
``opened``, which closes the file once nobody is inside.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from watcherml.errors import StoreError

# A fork does not wait longer than this for a thread that waits for another process itself.
_PATIENCE_SECONDS = 2.0


class _Gate:
    """Lets any number of threads in, and a fork only when all of them are out."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.inside: dict[int, int] = {}  # by thread
        self.forking = 0  # the thread that is forking
        self.left_open: list[int] = []  # descriptors to close when nobody is inside

    def enter(self) -> None:
        """Come in, as soon as nobody forks."""
        me = threading.get_ident()
        with self.changed:
            # A thread that is inside already goes on: whoever forks waits for it.
            while self.forking and self.forking != me and me not in self.inside:
                self.changed.wait(_PATIENCE_SECONDS)
            self.inside[me] = self.inside.get(me, 0) + 1

    def leave(self) -> None:
        """Go out, and let a fork that waits know."""
        me = threading.get_ident()
        with self.changed:
            self.inside[me] -= 1
            if not self.inside[me]:
                del self.inside[me]
            self._close_files()
            self.changed.notify_all()

    def step_out(self) -> bool:
        """Go out for a while; returns False, and stays, for a thread that is inside several blocks or in none."""
        me = threading.get_ident()
        with self.changed:
            if self.inside.get(me) != 1:  # an outer block may have a transaction open
                return False
        self.leave()
        return True

    def let_go(self, descriptor: int) -> None:
        """Close a descriptor now or when the last one inside goes out."""
        with self.changed:
            self.left_open.append(descriptor)
            self._close_files()

    def _close_files(self) -> None:
        while self.left_open and not self.inside:
            os.close(self.left_open.pop())

    def close(self) -> bool:
        """Let nobody in; returns whether everybody is out."""
        me, deadline = threading.get_ident(), time.monotonic() + _PATIENCE_SECONDS
        with self.changed:
            while self.forking and time.monotonic() < deadline:  # two threads that fork come one after the other
                self.changed.wait(deadline - time.monotonic())
            self.forking = me
            # Whoever forks from inside has SQLite's state in its own hands, and does not wait for itself.
            while self.inside.keys() - {me} and time.monotonic() < deadline:
                self.changed.wait(deadline - time.monotonic())
            return not self.inside

    def open(self) -> None:
        """Let everybody in again."""
        with self.changed:
            self.forking = 0
            self.changed.notify_all()


_gate = _Gate()
_clean = threading.local()
_broken_in = 0  # the process that was forked while somebody was inside


@contextmanager
def inside() -> Iterator[None]:
    """Keep forks of this process away for the block, and database files open.

    Raises ``StoreError`` in a process that was forked while its parent was inside such a block.
    """
    if _broken_in == os.getpid():
        raise StoreError(
            "this process was forked in the middle of an operation on a store, and cannot use one",
            remedy="Start it with multiprocessing's spawn or forkserver, or fork when no store is in use.",
        )
    gate = _gate
    gate.enter()
    try:
        yield
    finally:
        gate.leave()


@contextmanager
def outside() -> Iterator[None]:
    """Let forks pass for the block, in which this thread sleeps.

    Its operation has no connection open then: what SQLite remembers of one, a child would take for locks of its own.
    """
    gate = _gate
    out = gate.step_out()
    try:
        yield
    finally:
        if out:
            gate.enter()


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Yield a database file's bytes for reading; raises OSError. A pipe is empty, it is not waited for."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            yield stream
    finally:
        let_go(descriptor)


def let_go(descriptor: int) -> None:
    """Close a descriptor of a database file as soon as that costs nobody a lock."""
    _gate.let_go(descriptor)


def _before() -> None:
    _clean.fork = _gate.close()


def _after_in_parent() -> None:
    _gate.open()


def _after_in_child() -> None:
    global _gate, _broken_in
    _gate = _Gate()  # those who were inside the old one are not here
    if not getattr(_clean, "fork", True):
        _broken_in = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
