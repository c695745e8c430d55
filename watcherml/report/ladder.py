"""The trials of a campaign in order, followed by the stages that may still come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from watcherml.protocol.plan import RecoveryPlan
from watcherml.report.palette import Tone
from watcherml.report.safe import one_line
from watcherml.report.units import plural

STAGES = ("control", "probe", "full", "confirmation")
OUTCOME_TONES: dict[str, Tone] = {"completed": "good", "running": "calm", "oom": "bad", "contract_error": "bad"}


@dataclass(frozen=True)
class Rung:
    """One started trial. Values are None where nothing was measured; ``peak_bytes`` is bytes, ``wall_s`` seconds."""

    seq: int | None
    trial_id: str
    role: str
    proposal_id: str | None
    outcome: str
    steps: int | None
    peak_bytes: int | None
    wall_s: float | None
    sentence: str
    log_tail: tuple[str, ...] = ()  # where the sentence needs it
    log_end: tuple[str, ...] = ()  # whatever became of the trial

    @property
    def tone(self) -> Tone:
        """The colour of the outcome. A control has to run out of memory, so there it is the other way round."""
        if self.role == "control" and self.outcome in ("oom", "completed"):
            return "calm" if self.outcome == "oom" else "warn"
        return OUTCOME_TONES.get(self.outcome, "warn")

    @property
    def candidate(self) -> str:
        """What ran: the proposal's id, or the unchanged configuration."""
        return self.proposal_id or "unchanged"


@dataclass(frozen=True)
class Planned:
    """A stage of which up to ``count`` trials may still start."""

    role: str
    count: int

    @property
    def sentence(self) -> str:
        """The stage in words."""
        return "not started" if self.count == 1 else f"up to {plural(self.count, 'trial')}, not started"


def rungs(trials: Sequence[Mapping[str, Any]], lifecycle: str = "") -> list[Rung]:
    """Return started trials by number. Rows have the keys of the view ``trial_summary``; absent ones read as None.

    Of a campaign that is ``interrupted`` no trial runs, and none has run on: one without an end reads as lost.
    """
    gone = lifecycle == "interrupted"
    rows = [{**row, "outcome": "lost", "wall_s": None} if gone and _is_open(row) else row for row in trials]
    found = [
        Rung(
            trial.get("seq"),
            str(trial.get("trial_id") or ""),
            one_line(trial.get("role") or "", 40),
            None if trial.get("proposal_id") is None else str(trial["proposal_id"]),
            one_line(trial.get("outcome") or "running", 40),
            trial.get("steps"),
            trial.get("peak_bytes"),
            trial.get("wall_s"),
            str(trial.get("sentence") or ""),
            tuple(one_line(line, 400) for line in trial.get("log_tail") or ()),
            tuple(one_line(line, 400) for line in trial.get("log_end") or ()),
        )
        for trial in rows
    ]
    return sorted(found, key=lambda rung: (rung.seq is None, rung.seq or 0))


def _is_open(row: Mapping[str, Any]) -> bool:
    return (row.get("outcome") or "running") == "running"


def planned(plan: RecoveryPlan, started: Sequence[Rung], lifecycle: str) -> list[Planned]:
    """Return the stages still to come. None once the campaign has ended, or for stages it has gone past."""
    if lifecycle == "ended":
        return []
    contract, candidates = plan.contract, len(plan.proposals)
    most = {
        "control": int(contract.control),
        "probe": min(max(contract.probe_candidates, 0), candidates),
        "full": min(contract.budget.max_full_trials or 0, candidates),
        "confirmation": contract.verification.confirmation_runs if candidates else 0,
    }
    reached = max((STAGES.index(rung.role) for rung in started if rung.role in STAGES), default=0)
    found = []
    for index, role in enumerate(STAGES):
        left = most[role] - sum(rung.role == role for rung in started)
        if index >= reached and left > 0:
            found.append(Planned(role, left))
    return found
