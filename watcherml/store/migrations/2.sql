-- From schema 1 to 2. The views are dropped before and made anew afterwards, see migrate.py.
ALTER TABLE runs ADD COLUMN title TEXT;
ALTER TABLE runs ADD COLUMN origin TEXT NOT NULL DEFAULT 'here' CHECK (origin IN ('here', 'imported'));

-- Points by the process that logged them. What schema 1 held counts as one process of its own for each run; its points
-- are put next to each other in the order in which they were logged, so that each run is one range.
ALTER TABLE metrics RENAME TO metrics_of_schema_1;
DROP INDEX metrics_by_run;
CREATE TABLE metric_sources (
    source_id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES runs (run_id),
    process TEXT NOT NULL,
    UNIQUE (run_id, process)
);
CREATE TABLE metric_names (
    source_id INTEGER NOT NULL REFERENCES metric_sources (source_id),
    key INTEGER NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (source_id, key)
) WITHOUT ROWID;
CREATE TABLE metrics (
    -- A key of its own: VACUUM would give the rows of a table without one new numbers.
    point INTEGER PRIMARY KEY,
    key INTEGER NOT NULL,
    step INTEGER,
    value REAL,
    at REAL NOT NULL
);
CREATE TABLE metric_ranges (
    run_id TEXT NOT NULL REFERENCES runs (run_id),
    source_id INTEGER NOT NULL REFERENCES metric_sources (source_id),
    first_point INTEGER NOT NULL,
    last_point INTEGER NOT NULL
);
CREATE INDEX metric_ranges_by_run ON metric_ranges (run_id, first_point);
CREATE INDEX metric_ranges_by_source ON metric_ranges (source_id, last_point);
INSERT INTO metric_sources (run_id, process)
SELECT run_id, 'schema 1' FROM metrics_of_schema_1 GROUP BY run_id ORDER BY MIN(rowid);
INSERT INTO metric_names (source_id, key, name)
SELECT s.source_id, ROW_NUMBER() OVER (PARTITION BY s.source_id ORDER BY o.first) - 1, o.name
FROM (SELECT run_id, name, MIN(rowid) AS first FROM metrics_of_schema_1 GROUP BY run_id, name) o
JOIN metric_sources s USING (run_id);
INSERT INTO metrics (key, step, value, at)
SELECT n.key, o.step, CASE o.special WHEN 'inf' THEN 9e999 WHEN '-inf' THEN -9e999 ELSE o.value END, o.at
FROM metrics_of_schema_1 o
JOIN metric_sources s USING (run_id)
JOIN metric_names n ON n.source_id = s.source_id AND n.name = o.name
ORDER BY s.source_id, o.rowid;
-- The rows above got the numbers 1, 2, 3 ... in that order: a table that was empty, filled by one statement.
INSERT INTO metric_ranges (run_id, source_id, first_point, last_point)
SELECT run_id, source_id, upto - points + 1, upto FROM (
    SELECT s.run_id, s.source_id, COUNT(*) AS points, SUM(COUNT(*)) OVER (ORDER BY s.source_id) AS upto
    FROM metrics_of_schema_1 o JOIN metric_sources s USING (run_id) GROUP BY s.source_id
);
DROP TABLE metrics_of_schema_1;

ALTER TABLE samples ADD COLUMN tree_cpu_percent REAL;
ALTER TABLE samples ADD COLUMN tree_rss_bytes INTEGER;
CREATE TABLE gpu_samples (
    run_id TEXT NOT NULL REFERENCES runs (run_id),
    at REAL NOT NULL,
    gpu_index INTEGER NOT NULL,
    uuid TEXT NOT NULL,
    utilization_percent REAL,
    used_bytes INTEGER,
    total_bytes INTEGER,
    own_bytes INTEGER
);
CREATE INDEX gpu_samples_by_run ON gpu_samples (run_id, at);

-- A column cannot lose its NOT NULL in place.
ALTER TABLE artifacts RENAME TO artifacts_of_schema_1;
CREATE TABLE artifacts (
    artifact_id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES runs (run_id),
    path TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    sha256 TEXT,
    at REAL NOT NULL
);
INSERT INTO artifacts (run_id, path, size_bytes, sha256, at)
SELECT run_id, path, size_bytes, sha256, at FROM artifacts_of_schema_1 ORDER BY rowid;
DROP TABLE artifacts_of_schema_1;

CREATE TABLE imports (
    digest TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    run_id TEXT,
    campaign_id TEXT,
    document TEXT NOT NULL,
    source TEXT NOT NULL,
    at REAL NOT NULL
);

-- A REPLACE removes the old row without asking the trigger above.
CREATE TRIGGER records_are_never_replaced BEFORE INSERT ON records
WHEN EXISTS (SELECT 1 FROM records WHERE digest = NEW.digest) BEGIN SELECT RAISE(IGNORE); END;
CREATE TRIGGER trials_never_go BEFORE DELETE ON trials BEGIN SELECT RAISE(ABORT, 'trials are append-only'); END;
CREATE TRIGGER ends_never_go BEFORE DELETE ON trial_ends BEGIN SELECT RAISE(ABORT, 'trials are append-only'); END;
CREATE TRIGGER verdicts_never_go BEFORE DELETE ON verdicts BEGIN SELECT RAISE(ABORT, 'verdicts are append-only'); END;
