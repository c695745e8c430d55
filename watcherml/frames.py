"""Tidy pandas DataFrames over the store's views: times in UTC, units in the column names.

Needs pandas; the error gives the install command.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from watcherml.errors import MissingDependency
from watcherml.store.storage import Storage

if TYPE_CHECKING:
    import pandas as pd

Where = Storage | str | os.PathLike[str] | None
_TIMES = ("started_at", "ended_at", "created_at", "resolved_at", "at")


def runs(storage: Where = None, *, project: str | None = None, trials: bool = False) -> pd.DataFrame:
    """Return one row a run, newest first, with its configuration in ``config.*`` columns.

    ``trials`` includes the runs of recovery campaigns. Empty where there is no store yet.
    """
    rows = _query(storage, "SELECT * FROM run_summary ORDER BY started_at DESC, run_id")
    kept = [row for row in rows if (trials or row["role"] == "user") and project in (None, row["project"])]
    import json

    for row in kept:
        row.update({f"config.{key}": value for key, value in json.loads(row.pop("config")).items()})
    return _frame(kept, "run_summary", storage)


def metrics(
    run: str | Sequence[str] | None = None, storage: Where = None, *, names: Sequence[str] | None = None
) -> pd.DataFrame:
    """Return one row a metric point: run_id, project, name, step, value, at. NaN stays NaN.

    ``run`` is one id or several; without it all runs of the store.
    """
    wanted = None if run is None else [run] if isinstance(run, str) else list(run)
    where = Storage(storage) if not isinstance(storage, Storage) else storage
    if where.exists and wanted is not None and os.access(where.path, os.W_OK):
        for run_id in wanted:
            where.runs.fold(run_id)
    rows = _query(where, "SELECT run_id, project, name, step, value, at FROM metric_points ORDER BY point")
    kept = [
        row for row in rows if (wanted is None or row["run_id"] in wanted) and (names is None or row["name"] in names)
    ]
    return _frame(kept, "metric_points", where, drop=("special", "point"))


def trials(campaign: str | None = None, storage: Where = None) -> pd.DataFrame:
    """Return one row a trial: role, proposal, outcome, steps, peak_bytes, wall_s, in the order they ran."""
    rows = _query(storage, "SELECT * FROM trial_summary ORDER BY started_at, seq")
    kept = [row for row in rows if campaign in (None, row["campaign_id"])]
    return _frame(kept, "trial_summary", storage)


def failures(storage: Where = None, *, project: str | None = None) -> pd.DataFrame:
    """Return one row a capsule of a recorded run, newest first."""
    rows = _query(storage, "SELECT * FROM failure_summary WHERE role = 'user' ORDER BY created_at DESC")
    return _frame([row for row in rows if project in (None, row["project"])], "failure_summary", storage)


def campaigns(storage: Where = None, *, project: str | None = None) -> pd.DataFrame:
    """Return one row a recovery campaign, newest first."""
    rows = _query(storage, "SELECT * FROM campaign_summary ORDER BY created_at DESC")
    return _frame([row for row in rows if project in (None, row["project"])], "campaign_summary", storage)


def cells(storage: Where = None, *, run: str | None = None) -> pd.DataFrame:
    """Return one row an executed notebook cell, in order."""
    rows = _query(storage, "SELECT * FROM cell_history ORDER BY started_at, seq")
    return _frame([row for row in rows if run in (None, row["run_id"])], "cell_history", storage)


def _query(storage: Where, text: str) -> list[dict[str, Any]]:
    where = storage if isinstance(storage, Storage) else Storage(storage)
    if not where.exists:
        return []
    where.settle()
    with where.database.reading() as connection:
        return [dict(row) for row in connection.execute(text)]


def _columns(storage: Where, view: str) -> list[str]:
    where = storage if isinstance(storage, Storage) else Storage(storage)
    if not where.exists:
        return []
    with where.database.reading() as connection:
        return [row[1] for row in connection.execute(f"PRAGMA table_info({view})")]


def _frame(rows: list[dict[str, Any]], view: str, storage: Where, drop: tuple[str, ...] = ()) -> pd.DataFrame:
    try:
        import pandas as pd
    except ImportError:
        raise MissingDependency(
            "watcherml.frames needs pandas", remedy='Install it from the clone: pip install ".[notebook]"'
        ) from None
    columns = None if rows else [name for name in _columns(storage, view) if name not in drop]
    frame: pd.DataFrame = pd.DataFrame(rows, columns=columns)
    for name in _TIMES:
        if name in frame:
            frame[name] = pd.to_datetime(frame[name].astype("float64"), unit="s", utc=True)
    return frame
