"""A background thread that notes resources and brings spooled metrics into the store."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import psutil

from watcherml.recorder import framework

INTERVAL_SECONDS = 2.0


class Sampler:
    """Calls ``deliver(sample)`` at once and then every ``interval_seconds`` until stopped.

    The thread belongs to the process that started it; a forked child has none. Errors go to ``failed`` and
    never to training.
    """

    def __init__(
        self,
        deliver: Callable[[dict[str, Any]], None],
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
        self._process = psutil.Process()

    def start(self) -> None:
        """Start the thread."""
        self._process.cpu_percent()  # the first reading only sets the starting point
        self._thread = threading.Thread(target=self._loop, name="watcherml-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop and wait for the thread; does nothing in a forked child."""
        self._stop.set()
        if self._thread is not None and self._pid == os.getpid() and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    def sample(self) -> dict[str, Any]:
        """Return one reading: CPU of this process (percent of one core), memory in bytes, device bytes."""
        return {
            "at": self._clock(),
            "cpu_percent": self._process.cpu_percent(),
            "rss_bytes": self._process.memory_info().rss,
            "host_used_bytes": psutil.virtual_memory().used,
            **framework.device_sample(),
        }

    def _loop(self) -> None:
        while True:
            try:
                self._deliver(self.sample())
            except Exception as error:  # noqa: BLE001 - whatever it is, training goes on
                self._failed(error)
            if self._stop.wait(self._interval):
                return
