"""A run while it goes on: its metrics and memory, a few times a second at most, and still once it has ended.

The store is read, never written, by a daemon thread that does so less often where reading is expensive: it has to stay
unnoticed by training, which may hold the same interpreter.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from watcherml.api import data
from watcherml.api.record import Run
from watcherml.notebook.panels import base
from watcherml.report.html_live import html_live_curves, html_live_head
from watcherml.report.text import text_run
from watcherml.store.storage import Storage

LOOK_SECONDS = 0.25  # between two looks, so at most four updates a second
MOST_OF_ONE_CORE = 0.01
_MOST_POINTS = 160  # of a curve 180 pixels wide
_PATIENCE = 20  # looks that may fail in a row before the panel gives up

_shown: weakref.WeakValueDictionary[tuple[str, str], RunPanel] = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class _Look:
    """What one look at the store showed."""

    row: Mapping[str, Any]
    metrics: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    gpus: list[dict[str, Any]] = field(default_factory=list)


class RunPanel(base.Panel):
    """Follows a run of a store; ``run`` is the run itself where this process records it."""

    def __init__(self, storage: Storage, run_id: str, run: Run | None = None) -> None:
        super().__init__()
        self.storage = storage
        self.run_id = run_id
        self._run = run
        self._lock = threading.RLock()
        self._looked: tuple[Any, ...] = ()  # what the last look was about
        self._look = self._take_look()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._parts: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<RunPanel {self.run_id} {self._look.row['status']}>"

    @property
    def following(self) -> bool:
        """Whether a thread keeps the live view up to date."""
        return self._thread is not None and self._thread.is_alive()

    def follow(self) -> RunPanel:
        """Keep the live view up to date until the run ends; calling it again changes nothing."""
        with self._lock:
            if self._look.row["status"] == "running" and not self.following:
                self._thread = threading.Thread(target=self._watch, name="watcherml-run-panel", daemon=True)
                self._thread.start()
        return self

    # -- faces ------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """Return the run so far as text."""
        look = self._refreshed()
        calls = [f"%watcher inspect {self.run_id}  # its configuration, code and environment"]
        if look.row["status"] == "running" and self._run is not None:
            calls.insert(0, "run.finish()  # where `run` is the variable that holds it")
        return text_run(look.row, look.metrics, look.samples) + base.calls_text("Next", calls)

    def html(self) -> str:
        """Return the run so far as HTML."""
        look = self._refreshed()
        return base.classed("wml-run", self._head(look), self._curves(look))

    def _head(self, look: _Look) -> str:
        return html_live_head(look.row, self._last(look), self.storage.clock())

    def _curves(self, look: _Look) -> str:
        return html_live_curves(look.row, look.metrics, look.samples, look.gpus)

    def _last(self, look: _Look) -> Mapping[str, float]:
        if look.row["status"] != "running" or self._run is None:
            return {}  # the curves have all of it
        return dict(self._run.last_metrics)

    # -- the live view ----------------------------------------------------------------------------------------

    @property
    def live(self) -> bool:
        """Whether the run goes on."""
        return bool(self._look.row["status"] == "running")

    def again(self) -> str:
        """Return the magic that shows the run in another kernel."""
        return f"`%watcher inspect {self.run_id}` shows how the run ended."

    def _build(self) -> Any:
        self._parts = {"head": base.html_box(), "curves": base.html_box()}
        box = base.panel_box()
        box.children = (self._parts["head"], self._parts["curves"])
        box.add_class("wml-run")
        self._draw()
        self.follow()
        return box

    def _draw(self, curves: bool = True) -> None:
        with self._lock:
            if self._parts:
                self._parts["head"].value = self._head(self._look)
                if curves:
                    self._parts["curves"].value = self._curves(self._look)

    def _watch(self) -> None:
        failures, pause = 0, LOOK_SECONDS
        while self._look.row["status"] == "running" and not self._over.wait(pause):
            began = time.thread_time()
            try:
                before = self._look
                self._refresh()
                self._draw(curves=self._look.metrics is not before.metrics)
                failures = 0
            except Exception:  # noqa: BLE001 - a thread has nobody to raise to, and training goes on
                failures += 1
                if failures >= _PATIENCE:
                    return
            pause = max(LOOK_SECONDS, (time.thread_time() - began) / MOST_OF_ONE_CORE)

    def _refreshed(self) -> _Look:
        with contextlib.suppress(Exception):  # what was seen last is still true of its moment
            self._refresh()
        return self._look

    def _refresh(self) -> None:
        row = self._row()
        with self._lock:
            if _about(row) != self._looked:
                self._look = self._take_look(row)
            else:
                self._look = replace(self._look, row=row)  # the step is known before the next heartbeat
        self.settle()

    def _take_look(self, row: Mapping[str, Any] | None = None) -> _Look:
        row = self._row() if row is None else row
        runs = self.storage.runs
        look = _Look(
            row,
            runs.metrics(self.run_id, max_points=_MOST_POINTS),
            runs.samples(self.run_id, max_points=_MOST_POINTS),
            runs.gpu_samples(self.run_id),
        )
        self._looked = _about(row)
        return look

    def _row(self) -> Mapping[str, Any]:
        """Return the run's row. Of another process it is asked first whether that process still lives."""
        row = self.storage.runs.get(self.run_id) if self._run is not None else data.run(self.storage, self.run_id)
        if self._run is not None and self._run.status == "running" and self._run.last_step is not None:
            row["last_step"] = self._run.last_step
        return row


def run_panel(run: Run) -> RunPanel:
    """Return the panel of a run that this process records; asked again while it is shown, it is the same one."""
    key = (str(run.storage.path), run.run_id)
    found = _shown.get(key)
    if found is None:
        found = _shown[key] = RunPanel(run.storage, run.run_id, run)
    return found


def _about(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what has to be another for the curves to be: the recorder brings points in with each heartbeat."""
    return row["status"], row.get("heartbeat_at"), row.get("ended_at")
