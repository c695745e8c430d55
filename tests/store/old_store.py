"""Building a store of schema 1 as that version left it, and telling whether a folder was touched."""

import hashlib
import json
import sqlite3
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"
POINTS = [  # run, name, step, value, special; in the order of logging, runs and names interleaved
    ("one", "loss", 0, 1.5, None),
    ("two", "loss", 0, 2.5, None),
    ("one", "acc", 0, None, "nan"),
    ("one", "loss", 1, None, "inf"),
    ("two", "lr", None, 1e-3, None),
    ("one", "loss", 2, None, "-inf"),
    ("two", "loss", 1, 0.5, None),
    ("one", "acc", 1, 0.25, None),
]


def make(folder, wal=True):
    """Make a schema 1 store with a row of every kind; returns the path of its database."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "watcherml.db"
    connection = sqlite3.connect(path, isolation_level=None)
    if wal:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript((DATA / "schema-1.sql").read_text())
    connection.execute(f"PRAGMA application_id = {0x574D4C31}")
    connection.execute("PRAGMA user_version = 1")
    fill(connection)
    connection.close()
    return path


def fill(connection):
    """Put a row into every table of schema 1."""
    connection.execute("PRAGMA foreign_keys = ON")
    for run, status in (("one", "success"), ("two", "failed")):
        connection.execute(
            "INSERT INTO runs (run_id, project, role, status, started_at, ended_at, heartbeat_at, pid, process_started,"
            " boot_id, config, last_step, facts, device) VALUES (?, 'p', 'user', ?, 10, 20, 20, 1, 1, 'b', ?, 2, ?, ?)",
            (
                run,
                status,
                json.dumps({"lr": 0.1, "run": run}),
                json.dumps({"git": {"commit": "c"}}),
                '{"kind": "cuda"}',
            ),
        )
    connection.executemany(
        "INSERT INTO metrics (run_id, name, step, value, special, at) VALUES (?, ?, ?, ?, ?, ?)",
        [(*point, 100.0 + index) for index, point in enumerate(POINTS)],
    )
    statements = (
        "INSERT INTO samples VALUES ('one', 11, 50, 1000, 2000, 'cuda', 3, 4)",
        "INSERT INTO artifacts VALUES ('one', '/a/b', 7, 'sha256:aa', 12)",
        "INSERT INTO blobs VALUES ('sha256:bb', 'text/x-diff', x'00ff')",
        "INSERT INTO capsules VALUES (5, 'two', 'd', 'cuda_out_of_memory', 'cuda_out_of_memory', 's', 13,"
        ' \'{"value": {"run_id": "two"}}\', NULL, NULL, NULL)',
        "INSERT INTO cells VALUES ('s', 1, 'one', 1, 'c', 'x = 1', 'ok', NULL, NULL, 10, 1)",
        "INSERT INTO records VALUES ('sha256:plan', 'recovery-plan', 'camp', '{}', 14)",
        "INSERT INTO records VALUES ('sha256:req', 'trial-request', 'camp', '{\"q\": 1}', 15)",
        "INSERT INTO records VALUES ('sha256:res', 'trial-result', 'camp', '{\"r\": 1}', 16)",
        "INSERT INTO campaigns VALUES ('camp', 'p', 'two', 'sha256:plan', 14)",
        "INSERT INTO events VALUES ('camp', 1, 14, 'prepared', '{}')",
        "INSERT INTO events VALUES ('camp', 2, 17, 'ended', '{}')",
        "INSERT INTO trials VALUES ('t1', 'camp', 1, 'control', NULL, 'tr', 'sha256:req', 15)",
        "INSERT INTO trial_ends VALUES ('t1', 'sha256:res', 'oom', 's', 3, 9, 1.5, 0, 16)",
        "INSERT INTO verdicts VALUES ('camp', 'sha256:res', 'not_recovered', 'r', 's', NULL, 'cuda', 17)",
        "INSERT INTO spools VALUES ('one', 'one.7.jsonl', 40)",
    )
    for statement in statements:
        connection.execute(statement)


def points_of(run):
    """Return (name, step, value as text) of a run, in order, as they have to come back."""
    words = {"nan": "nan", "inf": "inf", "-inf": "-inf"}
    return [(name, step, words.get(special, repr(value))) for r, name, step, value, special in POINTS if r == run]


def tree(folder):
    """Return every file with mode, size, time and content, and every folder with its time."""
    found = {}
    for one in [folder, *sorted(folder.rglob("*"))]:
        state = one.stat()
        content = hashlib.sha256(one.read_bytes()).hexdigest() if one.is_file() else ""
        found[str(one.relative_to(folder))] = (state.st_mode, state.st_size, state.st_mtime_ns, content)
    return found
