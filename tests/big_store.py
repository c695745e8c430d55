"""A store of any size, filled by SQL in the store's own tables: for tests and benchmarks of reading."""

from __future__ import annotations

import sqlite3

from watcherml.store.storage import Storage

NAMES = ("train_loss", "val_loss", "lr", "grad_norm", "accuracy")
STATUSES = ("success", "failed", "killed", "interrupted")
STARTED = 1_750_000_000.0

_RUNS = """
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :runs)
INSERT INTO runs (run_id, project, role, status, end_reason, started_at, ended_at, heartbeat_at, pid, process_started,
    boot_id, config, device, last_step, facts)
SELECT printf('project-%d-run-%06d', i % 7, i), printf('project-%d', i % 7), 'user',
    CASE i % 10 WHEN 1 THEN 'failed' WHEN 2 THEN 'killed' WHEN 3 THEN 'interrupted' ELSE 'success' END, '',
    :started + i * 60, :started + i * 60 + 50, :started + i * 60 + 50, 1, 1.0, 'boot',
    json_object('lr', 0.001 * (i % 9), 'batch_size', 32, 'model', json_object('name', 'gpt', 'layers', 12)),
    '{"kind": "cuda", "name": "GPU"}', :steps, json_object('environment', replace(hex(zeroblob(3000)), '0', 'x'))
FROM n
"""
_POINTS = """
WITH RECURSIVE p(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM p WHERE i + 1 < :points)
INSERT INTO metrics (key, step, value, at)
SELECT i % :names, i / :names, CASE WHEN i % 997 = 0 THEN NULL ELSE (i * 7919 % 1000) / 1000.0 END,
    r.started_at + i * 0.05
FROM metric_sources s CROSS JOIN runs r ON r.run_id = s.run_id CROSS JOIN p
"""
_RANGES = """
INSERT INTO metric_ranges SELECT run_id, source_id, (source_id - 1) * :points + 1, source_id * :points
FROM metric_sources ORDER BY source_id
"""
_SAMPLES = """
WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i + 1 < :samples)
INSERT INTO samples (run_id, at, cpu_percent, rss_bytes, host_used_bytes, device_kind, device_allocated_bytes,
    device_reserved_bytes)
SELECT r.run_id, r.started_at + s.i * 2, 50.0, 1000000000 + s.i * 7919 % 1000, 8000000000, 'cuda', 5000000,
    6000000 + s.i * 7919 % 1000
FROM runs r CROSS JOIN s
"""
_CAPSULES = """
INSERT INTO capsules (run_id, digest, failure_class, subkind, sentence, created_at, document)
SELECT run_id, 'sha256:0', 'cuda_out_of_memory', '', 'CUDA out of memory.', ended_at, '{}' FROM runs
WHERE status = 'failed'
"""


def fill(storage: Storage, *, runs: int, points: int, samples: int = 20) -> None:
    """Make a store of ``runs`` ended runs, each with ``points`` metric points under five names and ``samples``."""
    storage.create()
    connection = sqlite3.connect(storage.database.path, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        connection.execute(_RUNS, {"runs": runs, "started": STARTED, "steps": points // len(NAMES)})
        connection.execute("INSERT INTO metric_sources (run_id, process) SELECT run_id, '1' FROM runs ORDER BY run_id")
        connection.executemany(
            "INSERT INTO metric_names SELECT source_id, ?, ? FROM metric_sources", list(enumerate(NAMES))
        )
        connection.execute(_POINTS, {"points": points, "names": len(NAMES)})
        connection.execute(_RANGES, {"points": points})
        connection.execute(_SAMPLES, {"samples": samples})
        connection.execute(_CAPSULES)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
