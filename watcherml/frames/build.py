"""From rows to frames: the columns of each view, the pandas type of each, and the wide form of metrics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from watcherml.errors import MissingDependency
from watcherml.sealed.canonical import canonical_bytes
from watcherml.store.sound import damaged, each, sound

if TYPE_CHECKING:
    import pandas as pd

_LAST_SECOND = 253_402_300_800  # of the year 9999; a later or endless time is shown as missing
_LONGEST_VALUE = 40  # characters of a configuration value in a proposal's changes
# The columns of each frame with the kind of their values, see _column.
COLUMNS = {
    "run_summary": "run_id:text project:text title:text role:text status:text end_reason:text started_at:time"
    " ended_at:time duration_s:float last_step:int device_kind:text failure_class:text peak_rss_bytes:int"
    " peak_device_bytes:int campaign_id:text trial_id:text origin:text config:text",
    "metric_points": "run_id:text project:text name:text step:int value:float at:time",
    "sample_points": "run_id:text project:text at:time since_start_s:float cpu_percent:float tree_cpu_percent:float"
    " rss_bytes:int tree_rss_bytes:int host_used_bytes:int device_kind:text device_allocated_bytes:int"
    " device_reserved_bytes:int",
    "gpu_points": "run_id:text project:text at:time since_start_s:float gpu_index:int uuid:text"
    " utilization_percent:float used_bytes:int total_bytes:int own_bytes:int",
    "cell_history": "session_id:text seq:int run_id:text execution_count:int cell_id:text source:text status:text"
    " error_type:text error_message:text started_at:time seconds:float",
    "failure_summary": "run_id:text project:text role:text failure_class:text subkind:text sentence:text"
    " created_at:time resolved_at:time resolved_by:text resolved_note:text device_kind:text",
    "campaign_summary": "campaign_id:text project:text source_run_id:text created_at:time last_change:text status:text"
    " reason_code:text sentence:text candidate_id:text device_kind:text ended_at:time trials:int trial_wall_s:float",
    "trial_summary": "trial_id:text campaign_id:text seq:int role:text proposal_id:text run_id:text started_at:time"
    " ended_at:time outcome:text steps:int peak_bytes:int wall_s:float gpu_s:float sentence:text",
    "proposal_summary": "campaign_id:text project:text source_run_id:text seq:int proposal_id:text title:text"
    " changes:text authority:text risk:text semantic:bool effective_batch:text predicted_peak_bytes:int"
    " trials:int outcome:text verified:bool created_at:time plan_digest:text",
}


def columns(view: str) -> dict[str, str]:
    """Return the columns of a view's frame with the kind of each: text, int, float, bool or time."""
    pairs = (column.partition(":") for column in COLUMNS[view].split())
    return {name: kind for name, _, kind in pairs}


def load_pandas() -> Any:
    """Return the pandas module; ``MissingDependency`` with the install command where there is none."""
    try:
        import pandas
    except ImportError:
        raise MissingDependency(
            "watcherml.frames needs pandas", remedy='Install it from the clone: pip install ".[notebook]"'
        ) from None
    return pandas


def make_frame(view: str, rows: Sequence[tuple[Any, ...]]) -> pd.DataFrame:
    """Return rows, with values in the order of ``columns``, as a frame; a damaged one is left out with a warning."""
    kinds = columns(view)
    try:
        return _frame(kinds, rows)
    except (ValueError, TypeError, OverflowError):  # only now is it worth looking at each value
        return _frame(kinds, each(rows, lambda row: _sound(view, kinds, row)))


_PLAIN: dict[str, type | tuple[type, ...]] = {
    "text": str,
    "int": int,
    "bool": int,
    "float": (int, float),
    "time": (int, float),
}


def _sound(view: str, kinds: dict[str, str], row: tuple[Any, ...]) -> tuple[Any, ...]:
    for (name, kind), value in zip(kinds.items(), row, strict=True):
        if value is not None and not isinstance(value, _PLAIN[kind]):
            raise damaged(view, str(row[0])[:80], name, f"a value of kind {kind}", repr(value)[:80])
    return row


def _frame(kinds: dict[str, str], rows: Sequence[tuple[Any, ...]]) -> pd.DataFrame:
    values = list(zip(*rows, strict=True)) or [()] * len(kinds)
    made: pd.DataFrame = load_pandas().DataFrame(
        {name: _column(kind, one) for (name, kind), one in zip(kinds.items(), values, strict=True)}
    )
    return made


def with_configs(frame: pd.DataFrame) -> pd.DataFrame:
    """Replace the column of JSON configurations by one column a key."""
    places = each(zip(frame.index, frame["run_id"], frame["config"], strict=True), _config)
    frame = frame.loc[[index for index, _ in places]].drop(columns="config")
    configs = [config for _, config in places]
    keys = dict.fromkeys(key for config in configs for key in config)
    found = {f"config.{key}": [config.get(key) for config in configs] for key in keys}
    made: pd.DataFrame = load_pandas().concat([frame, load_pandas().DataFrame(found, index=frame.index)], axis=1)
    return made


def _config(row: tuple[Any, str, str]) -> tuple[Any, dict[str, Any]]:
    index, run_id, text = row
    return index, sound("runs", {"run_id": run_id, "config": text})["config"]


def widen(frame: pd.DataFrame) -> pd.DataFrame:
    """Return metric points as one row a (run_id, step) and one column a metric; later points overwrite earlier ones."""
    import numpy as np
    import pandas as pd

    name_of, names = pd.factorize(frame["name"])
    run_of, _ = pd.factorize(frame["run_id"])
    without = frame["step"].isna().to_numpy()
    steps = frame["step"].fillna(0).to_numpy(dtype="int64")
    order = np.lexsort((steps, without, run_of))
    keys = np.stack((run_of, without, steps))[:, order]
    first = np.ones(len(frame), dtype=bool)
    first[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    row_of = np.empty(len(frame), dtype="int64")
    row_of[order] = np.cumsum(first) - 1
    # Of several points in one place the last one counts; numpy does not promise which one an assignment leaves.
    place = row_of * len(names) + name_of
    _, from_end = np.unique(place[::-1], return_index=True)
    last = len(frame) - 1 - from_end
    values = np.full((int(first.sum()), len(names)), np.nan)
    values.flat[place[last]] = frame["value"].to_numpy()[last]
    taken = {"run_id", "step"}
    wide = pd.DataFrame(values, columns=[f"metric.{name}" if name in taken else name for name in names])
    keys_only = frame[["run_id", "step"]].iloc[order[first]].reset_index(drop=True)
    made: pd.DataFrame = pd.concat([keys_only, wide], axis=1)
    return made


def change_words(changes: str) -> str:
    """Return a proposal's changes, a JSON list, as ``path: before -> after`` with semicolons between them."""
    return "; ".join(
        f"{'.'.join(one['path'])}: {_short(one['before'])} → {_short(one['after'])}" for one in json.loads(changes)
    )


def _short(value: Any) -> str:
    text = canonical_bytes(value).decode()
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def _column(kind: str, values: Sequence[Any]) -> Any:
    import numpy as np

    pd = load_pandas()
    if kind == "text":
        return pd.array(list(values), dtype="string")
    if kind == "int":
        return pd.array(list(values), dtype="Int64")
    if kind == "bool":
        return pd.array([None if value is None else bool(value) for value in values], dtype="boolean")
    numbers = np.array(values, dtype="float64")  # None becomes NaN
    return numbers if kind == "float" else _times(numbers)


def _times(seconds: Any) -> Any:
    import numpy as np

    known = np.abs(seconds) < _LAST_SECOND
    stamps = np.where(known, np.round(seconds * 1e6), 0).astype("int64").astype("datetime64[us]")
    stamps[~known] = np.datetime64("NaT")
    return load_pandas().DatetimeIndex(stamps).tz_localize("UTC")
