"""From a worker's report and the way its process ended to one ``TrialResult``. Never "probably"."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watcherml.errors import InvalidRecord
from watcherml.protocol.request import TrialRequest
from watcherml.protocol.result import Outcome, Progress, TrialResult, WorkerReport
from watcherml.trials.logs import tail_of
from watcherml.trials.paths import TrialPaths, read_plain


@dataclass(frozen=True)
class Exit:
    """How a trial's process ended; ``reason`` is exited, timeout, stopped, supervisor_lost or guard_lost."""

    reason: str
    exit_code: int | None = None
    signal: str | None = None
    started_at: float = 0.0
    wall_seconds: float = 0.0
    oom_kills: int = 0
    report: str | None = None
    report_sha256: str | None = None

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Exit:
        """Read the guard's ``exit.json``; ``KeyError`` or ``TypeError`` if it is none."""
        found = {key: data[key] for key in cls.__dataclass_fields__ if key != "report_sha256"}
        return cls(**found, report_sha256=data.get("report_sha256"))


def result_of(request: TrialRequest, ended: Exit, folder: Path) -> TrialResult:
    """Return the result that goes on record.

    ``completed`` needs a report for this very request and exit code 0; everything else gets the outcome that was
    seen, not the one that was hoped for.
    """
    report, problem = _read_report(request, ended, folder)
    outcome = _outcome(report, ended)
    gpus = report.gpu_count if report is not None else 1
    wall = ended.wall_seconds
    if ended.reason == "guard_lost":  # told by whoever came later, perhaps after days; it cannot have run so long
        wall = min(wall, request.timeout_seconds + request.grace_seconds)
    sentence = f"{_sentence(outcome, request, report, ended)} {problem}".strip()
    if report is None and (said := tail_of(TrialPaths(folder), 1)):
        sentence = f"{sentence} The last line it printed: {said[0]}"
    return TrialResult(
        request_digest=request.digest,
        trial_id=request.trial_id,
        run_id=request.run_id,
        outcome=outcome,
        execution_id=None if report is None else report.execution_id,
        failure=None if report is None else report.failure,
        metrics={} if report is None else report.metrics,
        progress=Progress(0, "none") if report is None else report.progress,
        peak=None if report is None else report.peak,
        identity=None if report is None else report.identity,
        knobs=() if report is None else report.knobs,
        traits=() if report is None else report.traits,
        device=None if report is None else report.device,
        exit_code=ended.exit_code,
        exit_signal=ended.signal,
        started_at=ended.started_at,
        wall_seconds=wall,
        gpu_seconds=round(wall * max(gpus, 1), 3),
        sentence=sentence[:2000],
    )


def _read_report(request: TrialRequest, ended: Exit, folder: Path) -> tuple[WorkerReport | None, str]:
    if ended.report is None:
        return None, ""
    try:
        data = read_plain(folder / Path(ended.report).name)
        if ended.report_sha256 is not None and hashlib.sha256(data).hexdigest() != ended.report_sha256:
            return None, "Its report was changed after it had been written."
        report = WorkerReport.from_json(data)
    except (OSError, InvalidRecord) as error:
        return None, f"Its report is not valid ({error})."
    if report.request_digest != request.digest:
        return None, "Its report belongs to another request."
    return report, ""


def _outcome(report: WorkerReport | None, ended: Exit) -> Outcome:
    if ended.reason == "timeout":
        return "timeout"
    if ended.reason in ("supervisor_lost", "guard_lost"):
        return "lost"
    if ended.reason == "stopped":
        return "killed"
    if ended.signal is not None:
        return "host_oom" if ended.signal == "SIGKILL" and ended.oom_kills > 0 else "killed"
    if report is None:
        return "exited"
    if report.outcome == "completed" and ended.exit_code != 0:
        return "exited"
    return report.outcome


def _sentence(outcome: Outcome, request: TrialRequest, report: WorkerReport | None, ended: Exit) -> str:
    if outcome == "completed" and report is not None:
        steps = report.progress.steps
        return f"Ended well after {steps} step{'' if steps == 1 else 's'} ({report.progress.source})."
    if report is not None and report.failure is not None and outcome in ("oom", "training_failed", "contract_error"):
        words = {
            "oom": "Ran out of memory",
            "training_failed": "Training failed",
            "contract_error": "Broke the protocol",
        }
        where = f" in {report.failure.phase}" if report.failure.phase not in ("", "unknown") else ""
        first = report.failure.message.strip().splitlines() or [""]
        return f"{words[outcome]}{where}: {report.failure.exception_type}: {first[0][:600]}"
    return {
        "timeout": f"Was ended after its {request.timeout_seconds:g} s.",
        "killed": f"Was killed ({ended.signal or ended.reason}).",
        "host_oom": "Was killed by the system because host memory ran out.",
        "lost": "Its guard or supervisor was lost; what it did is not known.",
        "exited": f"Its process ended with exit code {ended.exit_code} and no valid report of success.",
    }.get(outcome, f"Ended as {outcome}.")
