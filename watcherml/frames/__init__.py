"""Tidy pandas DataFrames over the store's views.

Every time is UTC with microseconds, every unit stands in its column's name. Columns and their types are the same in an
empty frame, so that code which works on one works on the other: text is ``string``, a count or a size ``Int64``
(missing is <NA>), a number ``float64`` (missing is NaN), a yes or no ``boolean``, a time ``datetime64[us, UTC]``. Where
there is no store yet, frames are empty.

Filters are made in SQL, so that a big store costs no more than what is asked for. ``project``, ``run``, ``status`` and
the like take one value or several. ``since`` is inclusive and ``until`` is not; both are a datetime with a time zone, a
date or an ISO 8601 text (UTC where it names no zone), or seconds since 1970. ``limit`` and ``offset`` count rows in the
order of the frame. A value that cannot be right is ``InvalidValue``, an id that nobody recorded ``NotFound``.

Needs pandas; the error gives the install command.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from watcherml.errors import InvalidValue
from watcherml.frames.build import change_words, widen, with_configs
from watcherml.frames.query import Moment, Query, Where, Words, words
from watcherml.store import points
from watcherml.store.runs import STATUSES

if TYPE_CHECKING:
    import pandas as pd

_CELL_STATUSES = ("ok", "error", "interrupted")
_CAMPAIGN_STATUSES = ("verified", "not_recovered", "stopped", "integration_error")
_TRIAL_ROLES = ("control", "probe", "full", "confirmation")
_OUTCOMES = (
    "running", "completed", "oom", "training_failed", "contract_error", "timeout", "killed", "exited", "host_oom",
    "lost",
)  # fmt: skip
# Where ids are on record.
_RUNS = "SELECT run_id FROM runs"
_CAMPAIGNS = "SELECT campaign_id FROM campaigns"


def runs(
    storage: Where = None,
    *,
    run: Words = None,
    project: Words = None,
    status: Words = None,
    trials: bool = False,
    since: Moment = None,
    until: Moment = None,
    limit: int | None = None,
    offset: int = 0,
) -> pd.DataFrame:
    """Return one row a run, newest first, with its configuration in ``config.*`` columns.

    Those are the first level of the configurations of the runs shown; their types are those of the values. ``trials``
    includes the runs of recovery campaigns. ``since`` and ``until`` are about ``started_at``.
    """
    query = Query(storage, "run_summary").among("run_id", run).among("project", project)
    query.one_of("status", status, STATUSES).between("started_at", since, until)
    if not trials and run is None:
        query.among("role", "user")
    query.known("run", run, _RUNS)
    return with_configs(query.frame("started_at DESC, run_id", limit, offset))


def metrics(
    run: Words = None,
    storage: Where = None,
    *,
    names: Words = None,
    project: Words = None,
    since: Moment = None,
    until: Moment = None,
    limit: int | None = None,
    offset: int = 0,
    wide: bool = False,
) -> pd.DataFrame:
    """Return one row a metric point, by run and then as they were logged. NaN stays NaN; no step is <NA>.

    ``run`` is one id or several; without it all runs of the store, which may be millions of points: ``limit`` and
    ``offset`` page through them. Points that still lie in a run's journal are there, too.

    With ``wide`` there is one row a (run_id, step) and one column a metric, by run and step, rows without a step last.
    Of several points of a metric at one step the one logged last stays. A metric called run_id or step has the column
    ``metric.run_id`` or ``metric.step``. NaN is both "was NaN" and "was not logged there". Raises ``InvalidValue`` for
    ``wide`` together with ``limit`` or ``offset``.
    """
    if wide and (limit is not None or offset):
        raise InvalidValue("limit", expected="no limit or offset beside wide=True, which puts several points in a row")
    query = Query(storage, "metric_points", points.across("{where}"))
    query.known("run", run, _RUNS).fold(run)
    query.among("g.run_id", run, "run").among("r.project", project, "project").among("n.name", names, "names")
    frame = query.between("m.at", since, until).frame("", limit, offset)
    return widen(frame) if wide else frame


def samples(
    run: Words = None,
    storage: Where = None,
    *,
    project: Words = None,
    since: Moment = None,
    until: Moment = None,
    limit: int | None = None,
    offset: int = 0,
    gpus: bool = False,
) -> pd.DataFrame:
    """Return one row a resource sample, by run and time: processor, host memory and device memory.

    With ``gpus`` one row a GPU and sample instead, as NVML saw it; ``own_bytes`` is what the run's process held there.
    """
    query = Query(storage, "gpu_points" if gpus else "sample_points").known("run", run, _RUNS)
    query.among("run_id", run, "run").among("project", project).between("at", since, until)
    return query.frame("run_id, at", limit, offset)


def cells(
    storage: Where = None,
    *,
    run: Words = None,
    session: Words = None,
    project: Words = None,
    status: Words = None,
    since: Moment = None,
    until: Moment = None,
    limit: int | None = None,
    offset: int = 0,
) -> pd.DataFrame:
    """Return one row an executed notebook cell, in order. ``status`` is ok, error or interrupted."""
    query = Query(storage, "cell_history").known("run", run, _RUNS)
    query.among("run_id", run, "run").among("session_id", session, "session")
    query.among("run_id", project, "project", f"{_RUNS} WHERE project IN")
    query.one_of("status", status, _CELL_STATUSES).between("started_at", since, until)
    return query.frame("started_at, seq", limit, offset)


def failures(
    storage: Where = None,
    *,
    run: Words = None,
    project: Words = None,
    failure_class: Words = None,
    resolved: bool | None = None,
    trials: bool = False,
    since: Moment = None,
    until: Moment = None,
    limit: int | None = None,
    offset: int = 0,
) -> pd.DataFrame:
    """Return one row a failure capsule, newest first; ``trials`` includes those of recovery trials."""
    query = Query(storage, "failure_summary").known("run", run, _RUNS).among("run_id", run, "run")
    query.among("project", project).among("failure_class", failure_class).between("created_at", since, until)
    if not trials and run is None:
        query.among("role", "user")
    if resolved is not None:
        query.where(f"resolved_at IS {'NOT ' if resolved else ''}NULL")
    return query.frame("created_at DESC, capsule_id DESC", limit, offset)


def campaigns(
    storage: Where = None,
    *,
    campaign: Words = None,
    project: Words = None,
    run: Words = None,
    status: Words = None,
    since: Moment = None,
    until: Moment = None,
    limit: int | None = None,
    offset: int = 0,
) -> pd.DataFrame:
    """Return one row a recovery campaign, newest first; ``run`` is the failed run it is about.

    ``status`` is that of the verdict on record and <NA> while there is none; ``last_change`` says where it stands then.
    """
    query = Query(storage, "campaign_summary").known("campaign", campaign, _CAMPAIGNS)
    query.known("run", run, _RUNS).among("campaign_id", campaign, "campaign")
    query.among("source_run_id", run, "run").among("project", project).one_of("status", status, _CAMPAIGN_STATUSES)
    return query.between("created_at", since, until).frame("created_at DESC, campaign_id", limit, offset)


def trials(
    campaign: Words = None,
    storage: Where = None,
    *,
    project: Words = None,
    role: Words = None,
    outcome: Words = None,
    since: Moment = None,
    until: Moment = None,
    limit: int | None = None,
    offset: int = 0,
) -> pd.DataFrame:
    """Return one row a trial: role, proposal, outcome, steps, peak_bytes, wall_s, in the order they ran."""
    query = Query(storage, "trial_summary").known("campaign", campaign, _CAMPAIGNS)
    query.among("campaign_id", campaign, "campaign")
    query.among("campaign_id", project, "project", f"{_CAMPAIGNS} WHERE project IN")
    query.one_of("role", role, _TRIAL_ROLES).one_of("outcome", outcome, _OUTCOMES)
    return query.between("started_at", since, until).frame("started_at, seq", limit, offset)


def proposals(
    of: Words = None, storage: Where = None, *, project: Words = None, tried: bool | None = None
) -> pd.DataFrame:
    """Return one row a proposal of every plan on record, newest plan first, in the plan's order.

    ``of`` is a campaign or a failed run, or several. ``outcome`` is that of the proposal's last trial, <NA> if it was
    not ``tried``; ``verified`` tells whether the campaign's verdict is about it. A plan that was only prepared has no
    campaign_id; one that was started twice is there twice.
    """
    query = Query(storage, "proposal_summary").known("of", of, f"{_RUNS} UNION {_CAMPAIGNS}").among("project", project)
    if of is not None:
        ids = json.dumps(words("of", of))
        among = "IN (SELECT value FROM json_each(?))"
        query.where(f"(campaign_id {among} OR source_run_id {among})", ids, ids)
    if tried is not None:
        query.where(f"trials {'>' if tried else '='} 0")
    frame = query.frame("created_at DESC, plan_digest, campaign_id, seq")
    frame["changes"] = frame["changes"].map(change_words).astype("string")
    frame.insert(list(frame.columns).index("trials"), "tried", frame["trials"] > 0)
    return frame
