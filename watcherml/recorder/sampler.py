"""A background thread that notes resources and brings spooled metrics into the store."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import psutil

from watcherml.recorder import framework
from watcherml.recorder.nvml import Nvml
from watcherml.recorder.processes import ProcessTree

T = TypeVar("T")
# What `deliver` takes: the row for `samples` and the rows for `gpu_samples`.
Deliver = Callable[[dict[str, Any], list[dict[str, Any]]], None]

INTERVAL_SECONDS = 2.0
# Where reading is expensive (thousands of processes, slow drivers) it happens less often, so that it never takes more
# than this share of one core; but often enough to show that the run is alive.
MOST_OF_ONE_CORE = 0.005
LONGEST_INTERVAL_SECONDS = 30.0
_JOIN_SECONDS = 5.0


class Sampler:
    """Calls ``deliver(sample, gpus)`` at once and then every ``interval_seconds`` until stopped.

    The thread belongs to the process that started it; a forked child has none. What cannot be read is None in the
    sample; errors of ``deliver`` go to ``failed`` and never to training.
    """

    def __init__(
        self,
        deliver: Deliver,
        failed: Callable[[Exception], None],
        clock: Callable[[], float],
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self._deliver = deliver
        self._failed = failed
        self._clock = clock
        self._interval = interval_seconds
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._reading = threading.RLock()  # a signal's handler may end the run in the middle of a call
        self._tree: ProcessTree | None = None
        self._nvml = Nvml()

    def start(self) -> None:
        """Start the thread; raises RuntimeError where the system allows no more threads."""
        self._tree = _or_none(ProcessTree)
        self._thread = threading.Thread(target=self._loop, name="watcherml-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop and wait for the thread; does nothing in a forked child."""
        if self._pid != os.getpid():
            return
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=_JOIN_SECONDS)

    def last(self) -> None:
        """Deliver one more reading after ``stop`` and let NVML go; raises what ``deliver`` raises."""
        try:
            self._deliver(*self.sample())
        finally:
            self._nvml.close()

    def sample(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Return one reading of process, process tree, host and device, and one row a GPU.

        CPU is percent of one core, memory is bytes.
        """
        with self._reading:
            tree = None if self._tree is None else _or_none(self._tree.read)
            memory = _or_none(psutil.virtual_memory)
            return {
                "at": self._clock(),
                **(tree or {}),
                "host_used_bytes": None if memory is None else int(memory.used),
                **framework.device_sample(),
            }, _or_none(self._nvml.readings) or []

    def _loop(self) -> None:
        while True:
            before = time.thread_time()
            cost = 0.0
            try:
                reading = self.sample()
                cost = time.thread_time() - before
                self._deliver(*reading)
            except Exception as error:  # noqa: BLE001 - whatever it is, training goes on
                self._failed(error)
            if self._stop.wait(max(self._interval, min(cost / MOST_OF_ONE_CORE, LONGEST_INTERVAL_SECONDS))):
                return


def _or_none(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except Exception:  # noqa: BLE001 - a reading that the system refuses is a missing one
        return None
