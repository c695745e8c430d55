"""Following a campaign from a terminal: a line an event, and Ctrl-C that stops the campaign before it passes."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from watcherml.api import data
from watcherml.api.recover import Campaign
from watcherml.api.result import RecoveryResult
from watcherml.cli.console import Console
from watcherml.protocol.plan import RecoveryPlan
from watcherml.report import plain
from watcherml.report.glossary import label
from watcherml.report.palette import Tone
from watcherml.report.safe import cut, one_line, shorten, width
from watcherml.report.units import format_bytes, format_seconds, plural

_LOOK_SECONDS = 0.25
_CANDIDATE_WIDTH = 26
_SENTENCE_WIDTH = 160
# The command has just said so itself, or is about to.
_SILENT = ("prepared", "started", "ended")
Event = Mapping[str, Any]


class Follower:
    """Shows what a campaign does: lines for a person, or one JSON line an event."""

    def __init__(self, console: Console, campaign: Campaign) -> None:
        self.console = console
        self.campaign = campaign
        self.plan: RecoveryPlan = campaign.plan
        self._seen = 0
        self._running = ""
        self._since = time.monotonic()

    def to_the_end(self) -> RecoveryResult:
        """Follow until the campaign has ended, and return its result, recomputed.

        Raises ``CampaignError`` if the supervisor is lost; KeyboardInterrupt passes and changes nothing.
        """
        while True:
            # Asked before the events are read, so that none that came before the end is missed.
            state = self.campaign.lifecycle
            self._show_new()
            if state not in ("running", "prepared"):
                self.console.clear()
                return self.campaign.wait()
            took = format_seconds(time.monotonic() - self._since)
            self.console.status(f"{self._running or 'starting'}, {took}")
            time.sleep(_LOOK_SECONDS)

    def stop(self, by: str) -> None:
        """Stop the campaign and wait for its end; a second Ctrl-C only stops the waiting."""
        grace = format_seconds(self.plan.contract.budget.termination_grace_seconds)
        self.console.notice(f"Stopping the campaign; the running trial is given {grace} to end.")
        self.campaign.stop(by)
        try:
            result = self.to_the_end()
        except KeyboardInterrupt:
            self.console.notice(f"Not waiting any longer. The stop of {self.campaign.campaign_id} is on record.")
            raise
        self.console.notice(f"Campaign {self.campaign.campaign_id} ended. {label(result.status)}: {result.sentence}")

    def _show_new(self) -> None:
        for event in data.events(self.campaign.storage, self.campaign.campaign_id, self._seen):
            self._seen = event["seq"]
            self._note(event)
            if self.console.json:
                self.console.document({"kind": "event", "campaign_id": self.campaign.campaign_id, **event})
            elif event["type"] not in _SILENT:
                self.console.say(event_line(event, self.plan, color=self.console.color, room=self.console.room))

    def _note(self, event: Event) -> None:
        self._since = time.monotonic()
        body = event["body"]
        started = event["type"] == "trial_started"
        self._running = f"{label(body['role'])} of {_candidate(body)}" if started else "deciding what is next"


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Let Ctrl-C wait until the block is done, so that what it starts can still be stopped afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: asked.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


def run_campaign(
    console: Console, start: Callable[[], Campaign], by: str, started: Callable[[Campaign], None] = lambda _: None
) -> tuple[Campaign, RecoveryResult]:
    """Start a campaign and follow it to its end; Ctrl-C at any moment stops what was started."""
    follower: Follower | None = None
    try:
        with held_interrupts():
            follower = Follower(console, start())
        started(follower.campaign)
        return follower.campaign, follower.to_the_end()
    except KeyboardInterrupt:
        if follower is not None:
            follower.stop(by)
        raise


def event_line(event: Event, plan: RecoveryPlan, *, color: bool = False, room: int | None = None) -> str:
    """Return one bounded line for an event; a finished trial with its peak beside the device's memory.

    ``room`` is the terminal's width; a narrow one does without the bar, then without what was predicted.
    """
    body, kind = event["body"], event["type"]
    if kind not in ("trial_started", "trial_ended"):
        return f"  {cut(one_line(event['words']), min(_SENTENCE_WIDTH, (room or _SENTENCE_WIDTH + 2) - 2))}"
    who = f"  {label(body['role']):<12}  {_candidate(body):<{_CANDIDATE_WIDTH}}"
    if kind == "trial_started":
        limit = body.get("max_steps")
        length = f"at most {plural(limit, 'step')}" if limit else "full length"
        return f"{who}  started, {length}"
    outcome = f"{label(str(body['outcome'])):<13}"
    steps, took = plural(body["steps"] or 0, "step"), format_seconds(body["wall_seconds"])
    for peak in _peaks(body, plan):
        facts = ", ".join(filter(None, (steps, peak, took)))
        if room is None or width(f"{who}  {outcome}  {facts}") <= room:
            break
    line = f"{who}  {plain.paint(outcome, _tone(body), color)}  {facts}"
    if body["outcome"] in ("completed", "oom"):
        return line
    # Anything else is not foreseen, so its reason is shown at once.
    return f"{line}  {shorten(one_line(body.get('sentence') or ''), _SENTENCE_WIDTH)}"


def _candidate(body: Mapping[str, Any]) -> str:
    return shorten(one_line(body.get("proposal_id") or "unchanged"), _CANDIDATE_WIDTH)


def _peaks(body: Mapping[str, Any], plan: RecoveryPlan) -> tuple[str, ...]:
    """Return the peak in words, the longest first; an empty text where none was measured."""
    peak, whole = body.get("peak_bytes"), plan.contract.device.budget_bytes
    if peak is None:
        return ("",)
    text = bare = f"peak {format_bytes(peak)}"
    bar = ""
    if whole is not None:
        text, bar = f"{text} of {format_bytes(whole)}", f" {plain.bar(peak, whole, 10)}"
    told = {one.proposal_id: one.predicted_peak_bytes for one in plan.proposals}.get(body.get("proposal_id") or "")
    predicted = "" if told is None else f", predicted {format_bytes(told)}"
    return f"{text}{bar}{predicted}", f"{text}{predicted}", text, bare


def _tone(body: Mapping[str, Any]) -> Tone:
    # A control has to run out of memory, so there the colours are the other way round.
    wanted = "oom" if body["role"] == "control" else "completed"
    return "good" if body["outcome"] == wanted else "warn" if body["outcome"] == "oom" else "bad"
