"""A campaign while it runs, followed from the store, and its verdict when it has one.

The campaign is a process of its own. A daemon thread reads its events and sets widget traits, nothing else; losing
the thread, the panel or the kernel changes nothing for the campaign.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from watcherml.api import data
from watcherml.api.recover import Campaign, resume_recovery
from watcherml.api.result import RecoveryResult
from watcherml.errors import CampaignError
from watcherml.notebook.panels import base
from watcherml.notebook.panels.verdict import verdict_html, verdict_text
from watcherml.report import markup
from watcherml.report.html import html_progress
from watcherml.report.html_campaign import html_log
from watcherml.report.ladder import Rung, rungs
from watcherml.report.palette import Tone
from watcherml.report.text import text_progress

LOOK_SECONDS = 0.3  # between two looks at the store, so at most four updates a second
_PATIENCE = 10  # looks that may fail in a row before the panel gives up


@dataclass(frozen=True)
class _Look:
    """What one look at the store showed."""

    lifecycle: str
    trials: list[dict[str, Any]]
    sentence: str
    logs: dict[str, list[str]] = field(default_factory=dict)  # the last lines of each trial, by its id
    stranded: bool = False  # nobody runs it, and nobody will before it is taken up


class ProgressPanel(base.Panel):
    """Follows a campaign. ``name`` is the variable that holds the panel, for the calls that its text names.

    Without a name its text names magics only.
    """

    def __init__(self, campaign: Campaign, name: str = "recovery") -> None:
        super().__init__()
        self.campaign = campaign
        self.name = name
        self.plan = campaign.plan
        self._lock = threading.RLock()
        self._look = self._take_look()
        self._result = self._read_result(self._look)
        self._thread: threading.Thread | None = None
        self._logs: dict[str, Any] = {}  # a widget for what each trial printed
        self._message: tuple[str, Tone] = ("", "calm")
        self._parts: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<ProgressPanel {self.campaign.campaign_id} {self._look.lifecycle}>"

    # -- calls ------------------------------------------------------------------------------------------------

    @property
    def result(self) -> RecoveryResult | None:
        """The campaign's result, None until it has one."""
        if self._result is None:
            self._refresh()
        return self._result

    def follow(self) -> ProgressPanel:
        """Keep the panel up to date until the campaign ends; calling it again changes nothing."""
        with self._lock:
            if self._look.lifecycle in ("prepared", "running") and (
                self._thread is None or not self._thread.is_alive()
            ):
                self._thread = threading.Thread(target=self._watch, name="watcherml-progress", daemon=True)
                self._thread.start()
        return self

    def wait(self, timeout: float | None = None) -> RecoveryResult | None:
        """Wait for the verdict and return the result.

        Ctrl-C detaches: it says so and returns None, and the campaign goes on. Raises ``CampaignError`` after
        ``timeout`` seconds, or if the supervising process is gone.
        """
        try:
            self.campaign.wait(timeout)
        except KeyboardInterrupt:
            base.show(base.notice(self._detached(), "warn", "wml-detached"))
            return None
        finally:
            self._refresh()
        return self._result

    def stop(self) -> base.Page:
        """Ask the campaign to end; what it has is put on record first. Does nothing once it has ended."""
        self._refresh()  # another kernel may have taken it up
        if self._look.lifecycle != "running":
            return base.notice(f"Campaign {self.campaign.campaign_id} is not running; there is nothing to stop.")
        self.campaign.stop("the notebook")
        ends = f"campaign {self.campaign.campaign_id} ends its running trial, and the verdict is made"
        self._say(f"A stop was asked for: {ends}.", "warn")
        return base.notice(self._message[0], "warn")

    def resume(self) -> ProgressPanel:
        """Take up a campaign that lost its supervising process. Raises ``CampaignError`` if it did not."""
        try:
            self.campaign = resume_recovery(self.campaign.campaign_id, self.campaign.storage)
        except CampaignError:
            self._refresh()  # another kernel may have taken it up: then this panel follows it as well
            self.follow()
            raise
        self._say("", "calm")
        self._refresh()
        return self.follow()

    # -- faces ------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """Return the trials so far, or the verdict, as text."""
        result = self.result
        if result is not None:
            return verdict_text(result) + base.calls_text("Next", self._calls())
        look = self._look
        return text_progress(self.plan, look.trials, look.lifecycle, look.sentence) + base.calls_text(
            "Meanwhile", self._calls()
        )

    def html(self) -> str:
        """Return the trials so far, or the verdict, as HTML."""
        result = self.result
        if result is not None:
            calls = self._calls()
            return verdict_html(result) + (base.calls_html("Next", calls) if calls else "")
        look = self._look
        trials = [{**row, "log_end": look.logs.get(row["trial_id"], ())} for row in look.trials]
        return self._progress_html(trials) + base.calls_html("Meanwhile", self._calls())

    def _progress_html(self, trials: list[dict[str, Any]]) -> str:
        look = self._look
        return base.classed("wml-progress", html_progress(self.plan, trials, look.lifecycle, look.sentence))

    def _calls(self) -> list[str]:
        name, campaign_id = self.name, self.campaign.campaign_id
        if self._result is not None:
            copied = name and self._result.verified
            return [f"{name}.result.verified_config  # the configuration to copy"] if copied else []
        if self._look.stranded:
            resume = f"%watcher resume {campaign_id}"
            return [f"{name}.resume()  # or: {resume}" if name else resume]
        if not name:
            return [f"%watcher recovery {campaign_id}  # to follow it", f"%watcher stop {campaign_id}"]
        return [
            f"{name}.wait()  # until the verdict; Ctrl-C detaches",
            f"{name}.stop()  # or: %watcher stop {campaign_id}",
            f"%watcher recovery {campaign_id}  # from any other kernel of this store",
        ]

    def _detached(self) -> str:
        return (
            f"Detached. Campaign {self.campaign.campaign_id} goes on in its own process.\n"
            f"Look again with {self.name}.wait() or `%watcher recovery {self.campaign.campaign_id}`;"
            f" end it with {self.name}.stop()."
        )

    # -- the live view ----------------------------------------------------------------------------------------

    @property
    def live(self) -> bool:
        """Whether the campaign has no result yet: it can be followed, stopped, or taken up."""
        return self._result is None

    def again(self) -> str:
        """Return the magic that follows the campaign in another kernel."""
        return f"`%watcher recovery {self.campaign.campaign_id}` shows how the campaign went on."

    def _build(self) -> Any:
        stop = base.button("Stop", "wml-stop", base.guarded(self.stop, self._say), icon="stop",
                           tooltip="End the campaign and make the verdict from what is on record")  # fmt: skip
        resume = base.button("Resume", "wml-resume", base.guarded(self.resume, self._say), style="primary",
                             tooltip="Start a new supervising process for this campaign")  # fmt: skip
        stop.layout.margin = resume.layout.margin = "10px 0 4px 0"
        self._parts = {
            "progress": base.html_box(),
            "message": base.html_box(css="wml-message"),
            "stop": stop,
            "resume": resume,
            "box": base.panel_box(),
        }
        self._draw()
        self.follow()
        return self._parts["box"]

    def _draw(self) -> None:
        """Bring the widgets to what is known; they send only what has changed."""
        with self._lock:
            parts = self._parts
            if not parts:
                return
            text, tone = self._message
            parts["message"].value = base.notice_html(text, tone) if text else ""
            if self._result is not None:
                if "verdict" not in parts:
                    parts["verdict"] = base.html_box(verdict_html(self._result))
                parts["box"].children = (parts["verdict"],)
                return
            # What a trial printed has a widget of its own, so that an opened fold is not closed by the next look.
            parts["progress"].value = self._progress_html([{**row, "log_tail": ()} for row in self._look.trials])
            parts["box"].children = (
                parts["progress"],
                parts["resume" if self._look.stranded else "stop"],
                parts["message"],
                *self._log_boxes(),
            )

    def _log_boxes(self) -> list[Any]:
        found = []
        look = self._look
        rows = [{**row, "log_end": look.logs.get(row["trial_id"], ())} for row in look.trials]
        for rung in rungs(rows, look.lifecycle):
            html = html_log(rung, _log_title(rung))
            if not html:
                continue
            if rung.trial_id not in self._logs:
                self._logs[rung.trial_id] = base.html_box(css="wml-log")
            self._logs[rung.trial_id].value = markup.root(html)
            found.append(self._logs[rung.trial_id])
        return found

    def _say(self, text: str, tone: Tone) -> None:
        self._message = (text, tone)
        self._draw()

    def _watch(self) -> None:
        failures = 0
        while self._result is None and self._look.lifecycle != "interrupted":
            time.sleep(LOOK_SECONDS)
            try:
                self._refresh()
                failures = 0
            except Exception as error:  # noqa: BLE001 - a thread has nobody to raise to; the panel says it
                failures += 1
                if failures >= _PATIENCE:
                    self._say(f"This panel no longer sees the campaign: {error}", "warn")
                    return

    def _refresh(self) -> None:
        look = self._take_look()
        result = self._read_result(look)
        with self._lock:
            if self._result is None:
                self._look, self._result = look, result
        self._draw()
        self.settle()

    def _take_look(self) -> _Look:
        campaign = self.campaign
        lifecycle = campaign.lifecycle
        trials = campaign.trials()
        now = campaign.storage.clock()
        for row in trials:
            if row["wall_s"] is None:
                row["wall_s"] = max(0.0, now - row["started_at"])
        events = data.events(campaign.storage, campaign.campaign_id)
        sentence = str(events[-1]["words"]) if events else ""
        sentence = sentence[:1].upper() + sentence[1:]
        if lifecycle == "interrupted":
            sentence = "The supervising process is gone and nothing is running. Next: resume the campaign."
        stranded = lifecycle != "ended" and not campaign.is_under_way
        if stranded and lifecycle == "prepared":
            sentence = "The supervising process did not start. Next: resume the campaign, which starts one."
        return _Look(lifecycle, trials, sentence, self._read_logs(trials), stranded)

    def _read_logs(self, trials: list[dict[str, Any]]) -> dict[str, list[str]]:
        """Read what trials printed; of one that has ended only once."""
        before = getattr(self, "_look", None)
        known = {} if before is None else {one["trial_id"]: one for one in before.trials}
        found = {}
        for row in trials:
            key = row["trial_id"]
            ended = known.get(key, {}).get("ended_at") is not None
            read = before.logs[key] if before is not None and ended else data.log_end(self.campaign.storage, key)
            found[key] = read
        return found

    def _read_result(self, look: _Look) -> RecoveryResult | None:
        if look.lifecycle != "ended":
            return None
        try:
            return self.campaign.result()
        except CampaignError:  # ended without a result cannot be; a reader must not break on it
            return None


def _log_title(rung: Rung) -> str:
    number = "" if rung.seq is None else f"Trial {rung.seq}, "
    return f"{number}{rung.role} of {rung.candidate}: what it {'prints' if rung.outcome == 'running' else 'printed'}"
