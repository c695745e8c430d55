"""The columns of the lists, once for terminals and for HTML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from watcherml.report.glossary import label
from watcherml.report.palette import Tone
from watcherml.report.units import format_bytes, format_count, format_seconds, format_time
from watcherml.report.words import RUN_TONES, VERDICT_TONES

Row = Mapping[str, Any]
EVENT_NAMES = {
    "prepared": "plan sealed",
    "started": "campaign started",
    "resumed": "campaign resumed",
    "trial_started": "trial started",
    "trial_ended": "trial ended",
    "ended": "campaign ended",
}


class Column(NamedTuple):
    """A column: its title, a row's value in words, its widest width in characters (more than 60 may wrap),
    its alignment and colour, whether it holds ids, and how gladly a narrow terminal does without it (0: never)."""

    title: str
    words: Callable[[Row], str]
    limit: int = 40
    numeric: bool = False
    tone: Callable[[Row], Tone] | None = None
    is_id: bool = False
    spare: int = 0

    @property
    def is_prose(self) -> bool:
        """Whether it holds sentences, which are read from their beginning and may be cut at their end."""
        return self.limit > 60


def campaign_status(row: Row) -> str:
    """Return a campaign's status, or where it stands while it has no verdict."""
    if row.get("status"):
        return label(str(row["status"]))
    last = str(row.get("last_change") or "")
    return {"prepared": "prepared", "started": "running", "resumed": "running"}.get(last, label(last) or "prepared")


def _campaign_tone(row: Row) -> Tone:
    return VERDICT_TONES.get(str(row.get("status")), "calm")


def _run_status(row: Row) -> str:
    return f"{row.get('status') or ''}{', imported' if row.get('origin') == 'imported' else ''}"


def _run_tone(row: Row) -> Tone:
    return RUN_TONES.get(str(row.get("status")), "quiet")


def _resolved(row: Row) -> str:
    return "open" if row.get("resolved_at") is None else "resolved"


def _resolved_tone(row: Row) -> Tone:
    return "warn" if row.get("resolved_at") is None else "good"


def _text(key: str) -> Callable[[Row], str]:
    return lambda row: "" if row.get(key) is None else str(row[key])


def _class(row: Row) -> str:
    return "" if row.get("failure_class") is None else label(str(row["failure_class"]))


def _device(row: Row) -> str:
    kind = str(row.get("device_kind") or "none")
    return {"none": "–", "simulated": "simulated"}.get(kind, label(kind))


# What a person called a run; stands beside its id, in text only where a row has one.
NAME = Column("Name", _text("title"), 24, spare=1)
# A run's id begins with its project, so that a narrow terminal can do without the project itself.
RUNS = (
    Column("Run", _text("run_id"), 44, is_id=True),
    Column("Project", _text("project"), 24, spare=2),
    Column("Status", _run_status, 22, tone=_run_tone),
    Column("Started", lambda row: format_time(row.get("started_at"), "–"), 23, spare=1),
    Column("Took", lambda row: format_seconds(row.get("duration_s"), "–"), 14, numeric=True, spare=3),
    Column("Step", lambda row: format_count(row.get("last_step"), "–"), 12, numeric=True, spare=3),
    Column("Peak", lambda row: format_bytes(row.get("peak_device_bytes"), "–"), 12, numeric=True, spare=4),
    Column("Device", _device, 10, spare=5),
    Column("Failure", _class, 32),
)
FAILURES = (
    Column("Run", _text("run_id"), 44, is_id=True),
    Column("Project", _text("project"), 24, spare=3),
    Column("State", _resolved, 10, tone=_resolved_tone),
    Column("Failed", lambda row: format_time(row.get("created_at"), "–"), 23, spare=1),
    Column("Failure", _class, 32, spare=2),  # the sentence says it too
    Column("Device", _device, 10, spare=3),
    Column("What happened", _text("sentence"), 90),
)
CAMPAIGNS = (
    Column("Campaign", _text("campaign_id"), 44, is_id=True),
    Column("Project", _text("project"), 24, spare=3),
    Column("Status", campaign_status, 18, tone=_campaign_tone),
    Column("Prepared", lambda row: format_time(row.get("created_at"), "–"), 23, spare=2),
    Column("Trials", lambda row: format_count(row.get("trials"), "–"), 7, numeric=True, spare=3),
    Column("Trial time", lambda row: format_seconds(row.get("trial_wall_s"), "–"), 14, numeric=True, spare=4),
    Column("Device", _device, 10, spare=5),
    Column("Source run", _text("source_run_id"), 44, is_id=True, spare=1),
    Column("Outcome", _text("sentence"), 90),
)
