"""``Behind``: small jobs that are done in order beside the person's code, so that no cell waits for a disk."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable

Job = Callable[[], None]


class Behind:
    """One daemon thread, started by the first job. ``problem`` hears of a job that raised."""

    def __init__(self, problem: Callable[[Exception], None]) -> None:
        self._problem = problem
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._process = 0
        self._starting = threading.Lock()

    def do(self, job: Job) -> None:
        """Queue a job; in a forked child, which has no part in the session, nothing happens."""
        with self._starting:
            if self._process == 0:
                threading.Thread(target=self._work, name="watcherml-cells", daemon=True).start()
                self._process = os.getpid()
        if self._process == os.getpid():
            self._jobs.put(job)

    def wait(self, seconds: float) -> bool:
        """Wait until the jobs queued so far are done; return whether they are."""
        if self._process != os.getpid():
            return True
        done = threading.Event()
        self._jobs.put(done.set)
        return done.wait(seconds)

    def end(self) -> None:
        """Let the thread end after the jobs queued so far. A later job starts another one."""
        with self._starting:
            if self._process == os.getpid():
                self._jobs.put(None)
                self._process = 0

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception as error:  # noqa: BLE001 - the next job has nothing to do with it
                with contextlib.suppress(Exception):
                    self._problem(error)
