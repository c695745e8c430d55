"""Stores of WatcherML 0.1, read as if they were ours: their rows are put into a database in memory with our schema.

What 0.1 said of a campaign was never checked by this verifier. It is told as a claim of 0.1: no record is made of it,
and no row has the status "verified".
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

from watcherml.errors import NotAStore
from watcherml.store.copies import memory_copy
from watcherml.store.header import what_it_is
from watcherml.store.migrate import create

ORIGIN = "0.1"
CLAIMED = "claimed_by_0.1"
# The version that 0.1 wrote into its own table; what came before it has the same tables with fewer columns.
_NEWEST_MAJOR = 2
_TABLES = {"runs", "metrics", "failures"}
_STATUSES = ("running", "success", "failed", "interrupted", "killed")
_OUTCOMES = {"success": "completed", "cuda_out_of_memory": "oom"}
_MIB = 2**20
_MAX_INTEGER = 2**63 - 1

Row = dict[str, Any]


def older_copy(path: Path) -> sqlite3.Connection:
    """Return the runs, metrics, samples, failures and campaigns of a ``watcher.db`` under our schema, in memory.

    Nothing is written beside it. Raises ``NotAStore`` for another database, OSError or ``sqlite3.DatabaseError`` where
    it cannot be read.
    """
    with closing(memory_copy(path)) as old:
        old.row_factory = sqlite3.Row
        _require(old, path)
        new = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        try:
            # The checks name what this version writes; the origin of these rows and their status is another one.
            new.execute("PRAGMA ignore_check_constraints = ON")
            new.execute("BEGIN")
            create(new)
            for convert in (_runs, _metrics, _samples, _artifacts, _failures, _campaigns):
                convert(old, new)
            new.execute("COMMIT")
        except BaseException:
            new.close()
            raise
    return new


def _require(old: sqlite3.Connection, path: Path) -> None:
    found = {str(row[0]) for row in old.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    version = next((str(row["version"]) for row in _rows(old, "storage_metadata")), "1")
    major = version.partition(".")[0]
    if not found >= _TABLES or not major.isdecimal() or int(major) > _NEWEST_MAJOR:
        raise NotAStore(
            f"{path} is not a store of WatcherML 0.1",
            expected=f"the tables {', '.join(sorted(_TABLES))} and a storage version up to {_NEWEST_MAJOR}",
            got=f"{what_it_is(path) if not found else ', '.join(sorted(found))[:200]}; version {version[:20]}",
            remedy="It was left alone. Choose another folder with --data-dir or WATCHERML_DIR.",
        )


def _runs(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    trials = {str(row["run_id"]): row for row in _rows(old, "recovery_trials") if row.get("run_id")}
    steps = dict(old.execute("SELECT run_id, MAX(step) FROM metrics WHERE typeof(step) = 'integer' GROUP BY run_id"))
    for row in _rows(old, "runs"):
        if row.get("run_id") is None:
            continue
        run_id, status = str(row["run_id"]), row.get("exit_status") or "running"
        trial, started = trials.get(run_id), _number(row.get("started_at")) or 0.0
        ended = _number(row.get("ended_at"))
        _insert(new, "runs", {
            "run_id": run_id, "project": str(row.get("project") or ""), "role": "user" if trial is None else "trial",
            "campaign_id": trial and trial.get("campaign_id"), "trial_id": trial and trial.get("trial_id"),
            "status": status if status in _STATUSES else "failed",
            "end_reason": _end_reason(str(status)), "started_at": started, "ended_at": ended,
            "heartbeat_at": started if ended is None else ended, "pid": 0, "process_started": 0.0, "boot_id": "",
            "config": json.dumps(_mapping(row.get("config_json"))), "last_step": steps.get(run_id),
            "device": json.dumps({"kind": "cuda"}) if _mapping(row.get("gpu_json")).get("available") is True else None,
            "facts": json.dumps(_facts(row)), "title": row.get("display_name"), "origin": ORIGIN,
        })  # fmt: skip


def _end_reason(status: str) -> str:
    if status == "running":
        return "WatcherML 0.1 recorded no end; whether its process is still there is not known."
    return "" if status in _STATUSES else f"WatcherML 0.1 called it {status[:100]}."


def _facts(row: Row) -> Row:
    found = {
        "recorded_by": {"version": ORIGIN},
        "git": _mapping(row.get("git_json")),
        "environment": _mapping(row.get("env_json")),
        "dataset": {"fingerprint": row["dataset_fingerprint"]} if row.get("dataset_fingerprint") else None,
        "resources": _mapping(row.get("resource_json")),
        "warnings": _json(row.get("warnings_json")),
        "tags": _json(row.get("tags_json")),
        "reproduction_score": row.get("reproduction_score"),
    }
    return {key: value for key, value in found.items() if value}


def _metrics(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    rows = old.execute("SELECT run_id, name, value, step, timestamp FROM metrics ORDER BY run_id, rowid")
    last = 0
    for source, (run_id, points) in enumerate(groupby(rows, key=lambda row: str(row[0])), start=1):
        names: dict[str, int] = {}
        new.execute("INSERT INTO metric_sources VALUES (?, ?, ?)", (source, run_id, ORIGIN))
        first = last + 1
        new.executemany(
            "INSERT INTO metrics (key, step, value, at) VALUES (?, ?, ?, ?)",
            (
                (names.setdefault(str(name), len(names)), _whole(step), _number(value), _number(at) or 0.0)
                for _, name, value, step, at in points
            ),
        )
        new.executemany(
            "INSERT INTO metric_names VALUES (?, ?, ?)", [(source, key, name) for name, key in names.items()]
        )
        last = int(new.execute("SELECT MAX(rowid) FROM metrics").fetchone()[0])
        new.execute("INSERT INTO metric_ranges VALUES (?, ?, ?, ?)", (run_id, source, first, last))


def _samples(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    for row in _rows(old, "resource_samples"):
        run_id, at = str(row.get("run_id")), _number(row.get("t")) or 0.0
        _insert(new, "samples", {"run_id": run_id, "at": at, "cpu_percent": _number(row.get("cpu_pct"))})
        used, busy = _number(row.get("gpu_mem_used_mib")), _number(row.get("gpu_util_pct"))
        if used is not None or busy is not None:
            _insert(new, "gpu_samples", {
                "run_id": run_id, "at": at, "gpu_index": 0, "uuid": "", "utilization_percent": busy,
                "used_bytes": None if used is None else int(used * _MIB),
            })  # fmt: skip


def _artifacts(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    ended = dict(old.execute("SELECT run_id, COALESCE(ended_at, started_at, 0.0) FROM runs"))
    for row in _rows(old, "artifacts"):
        checksum = str(row.get("checksum") or "")
        _insert(new, "artifacts", {
            "run_id": str(row.get("run_id")), "path": str(row.get("path")),
            "size_bytes": _whole(row.get("size_bytes")) or 0,
            # 0.1 cut the checksum of a run's own files short; part of one is not to be taken for a SHA-256.
            "sha256": f"sha256:{checksum}" if len(checksum) == 64 else None, "at": ended.get(row.get("run_id"), 0.0),
        })  # fmt: skip


def _failures(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    resolved = {row.get("run_id"): row for row in _rows(old, "runs") if row.get("resolved")}
    for row in _rows(old, "failures"):
        kind, at = str(row.get("failure_class") or "unclassified"), _number(row.get("captured_at")) or 0.0
        capsule = _mapping(row.get("capsule_json")) or {
            key: row.get(key) for key in ("run_id", "failure_class", "exception_type", "message", "traceback")
        }
        told = resolved.get(row.get("run_id"))
        _insert(new, "capsules", {
            "run_id": str(row.get("run_id")), "digest": ORIGIN, "failure_class": kind, "subkind": kind,
            "sentence": _first_line(row), "created_at": at,
            "document": json.dumps({"kind": "watcherml.failure-capsule", "origin": ORIGIN, "value": capsule}),
            # 0.1 kept no time for it.
            "resolved_at": at if told else None, "resolved_by": "WatcherML 0.1" if told else None,
            "resolved_note": f"Claimed by 0.1: {told.get('resolved_note') or 'resolved'}" if told else None,
        })  # fmt: skip


def _first_line(row: Row) -> str:
    first = (str(row.get("message") or "").strip().splitlines() or [""])[0]
    return f"{row.get('exception_type') or 'Exception'}: {first}"[:400]


def _campaigns(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    started = dict(old.execute("SELECT run_id, started_at FROM runs"))
    for row in _rows(old, "recovery_campaigns"):
        campaign_id, at = str(row.get("campaign_id")), _number(row.get("started_at")) or 0.0
        ended = _number(row.get("ended_at"))
        _insert(new, "campaigns", {
            "campaign_id": campaign_id, "project": str(row.get("project") or ""),
            "source_run_id": str(row.get("source_run_id")), "plan_digest": ORIGIN, "created_at": at,
        })  # fmt: skip
        events: list[tuple[float, str, Row]] = [(at, "prepared", {})]
        trials = [one for one in _rows(old, "recovery_trials") if one.get("campaign_id") == row.get("campaign_id")]
        trials.sort(key=lambda one: _number(started.get(one.get("run_id"))) or _number(one.get("created_at")) or 0.0)
        events += [_trial(new, one, seq, started) for seq, one in enumerate(trials, start=1)]
        if ended is not None:
            claim = {"status": CLAIMED, "reason_code": str(row.get("stopped_reason") or row.get("status") or "unknown"),
                     "sentence": _claim(row), "device_kind": "none"}  # fmt: skip
            _insert(new, "verdicts", {"campaign_id": campaign_id, "digest": ORIGIN, "at": ended, **claim})
            events.append((ended, "ended", claim))
        for seq, (when, kind, body) in enumerate(events, start=1):
            values = {"campaign_id": campaign_id, "seq": seq, "at": when, "type": kind, "body": json.dumps(body)}
            _insert(new, "events", values)


def _claim(row: Row) -> str:
    status = str(row.get("status") or "unknown").replace("_", " ")
    runs = _json(row.get("verified_run_ids_json"))
    by = f" with {row['verified_candidate_id']}" if row.get("verified_candidate_id") else ""
    by += f", {len(runs)} confirmations" if isinstance(runs, list) and runs else ""
    return f"Claimed by WatcherML 0.1: {status}{by}."[:400]


def _trial(new: sqlite3.Connection, row: Row, seq: int, started: dict[Any, Any]) -> tuple[float, str, Row]:
    run_id, wall = str(row.get("run_id")), _number(row.get("duration_seconds")) or 0.0
    at = _number(started.get(row.get("run_id"))) or _number(row.get("created_at")) or 0.0
    trial_id = str(row.get("trial_id") or f"{row.get('campaign_id')}-{seq}")
    status, failure = str(row.get("status") or row.get("outcome") or "unknown"), row.get("failure_class")
    sentence = f"WatcherML 0.1 recorded {status.replace('_', ' ')}"
    sentence += f" ({failure}) of {row['policy_rule']}." if failure and row.get("policy_rule") else "."
    shown = {"outcome": _OUTCOMES.get(str(failure or status), status), "sentence": sentence[:400],
             "steps": _whole(row.get("progress_steps")), "peak_bytes": _whole(row.get("peak_vram_bytes")),
             "wall_seconds": wall}  # fmt: skip
    chosen = {"role": str(row.get("phase") or "probe"), "proposal_id": row.get("proposal_id")}
    _insert(new, "trials", {
        "trial_id": trial_id, "campaign_id": str(row.get("campaign_id")), "seq": seq, "run_id": run_id,
        "request_digest": ORIGIN, "started_at": at, **chosen,
    })  # fmt: skip
    _insert(new, "trial_ends", {
        "trial_id": trial_id, "result_digest": ORIGIN, "gpu_seconds": _number(row.get("gpu_seconds")) or 0.0,
        "ended_at": at + wall, **shown,
    })  # fmt: skip
    return at + wall, "trial_ended", {"trial_id": trial_id, **chosen, **shown}


def _rows(old: sqlite3.Connection, table: str) -> Iterable[Row]:
    """Yield the rows of a table in the order in which they were written; none where 0.1 had no such table yet."""
    try:
        found = old.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall()
    except sqlite3.OperationalError:
        return []
    return [dict(row) for row in found]


def _insert(new: sqlite3.Connection, table: str, row: Row) -> None:
    columns, marks = ", ".join(row), ", ".join("?" for _ in row)
    new.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", tuple(row.values()))


def _json(text: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _mapping(text: Any) -> Row:
    found = _json(text)
    return found if isinstance(found, dict) else {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _whole(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and abs(value) <= _MAX_INTEGER else None
