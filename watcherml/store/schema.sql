-- Times are seconds since 1970 UTC. Columns that hold JSON documents are TEXT.
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY,
    project TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('user', 'trial')),
    campaign_id TEXT,
    trial_id TEXT,
    status TEXT NOT NULL CHECK (status IN ('running', 'success', 'failed', 'interrupted', 'killed')),
    end_reason TEXT NOT NULL DEFAULT '',
    started_at REAL NOT NULL,
    ended_at REAL,
    heartbeat_at REAL NOT NULL,
    pid INTEGER NOT NULL,
    process_started REAL NOT NULL,
    boot_id TEXT NOT NULL,
    config TEXT NOT NULL,
    lossy_paths TEXT NOT NULL DEFAULT '[]',
    redacted_paths TEXT NOT NULL DEFAULT '[]',
    device TEXT,
    last_step INTEGER,
    facts TEXT NOT NULL DEFAULT '{}',
    receipt TEXT,
    -- A person's name for the run; its id never changes.
    title TEXT,
    -- 'imported': somebody else's run, copied from an archive. It never counts as this store's own.
    origin TEXT NOT NULL DEFAULT 'here' CHECK (origin IN ('here', 'imported'))
);
CREATE INDEX runs_by_start ON runs (started_at DESC);
CREATE INDEX runs_by_project ON runs (project, started_at DESC);

-- Who logged: one process of a run. Its names have keys of its own, so that points can be taken over as they are.
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
-- A NaN is stored as NULL, which no other value is. No index: points of a run lie together, see metric_ranges.
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

-- How far each spool file has been folded into metrics, so that no point is taken twice.
CREATE TABLE spools (
    run_id TEXT NOT NULL,
    file TEXT NOT NULL,
    folded_bytes INTEGER NOT NULL,
    PRIMARY KEY (run_id, file)
);

CREATE TABLE samples (
    run_id TEXT NOT NULL REFERENCES runs (run_id),
    at REAL NOT NULL,
    cpu_percent REAL,
    rss_bytes INTEGER,
    host_used_bytes INTEGER,
    device_kind TEXT NOT NULL DEFAULT 'none',
    device_allocated_bytes INTEGER,
    device_reserved_bytes INTEGER,
    -- The process with all its descendants (data loader workers and the like).
    tree_cpu_percent REAL,
    tree_rss_bytes INTEGER
);
CREATE INDEX samples_by_run ON samples (run_id, at);

-- One row a GPU and sample, as NVML reports it; own_bytes is what this process holds there.
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

CREATE TABLE artifacts (
    artifact_id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES runs (run_id),
    path TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    -- NULL while a large file is still being hashed, or if the process ended before it was.
    sha256 TEXT,
    at REAL NOT NULL
);

CREATE TABLE blobs (
    digest TEXT PRIMARY KEY,
    media_type TEXT NOT NULL,
    data BLOB NOT NULL
);

CREATE TABLE capsules (
    capsule_id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES runs (run_id),
    digest TEXT NOT NULL,
    failure_class TEXT NOT NULL,
    subkind TEXT NOT NULL,
    sentence TEXT NOT NULL,
    created_at REAL NOT NULL,
    document TEXT NOT NULL,
    resolved_at REAL,
    resolved_by TEXT,
    resolved_note TEXT
);
CREATE INDEX capsules_by_run ON capsules (run_id, capsule_id DESC);

CREATE TABLE cells (
    session_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    run_id TEXT,
    execution_count INTEGER,
    cell_id TEXT,
    source TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('ok', 'error', 'interrupted')),
    error_type TEXT,
    error_message TEXT,
    started_at REAL NOT NULL,
    seconds REAL NOT NULL,
    PRIMARY KEY (session_id, seq)
);
CREATE INDEX cells_by_run ON cells (run_id);

-- The on-record table: a plan, authorization, request or result counts only if its digest stands here.
CREATE TABLE records (
    digest TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    campaign_id TEXT,
    document TEXT NOT NULL,
    at REAL NOT NULL
);
CREATE INDEX records_by_campaign ON records (campaign_id, kind);
CREATE TRIGGER records_never_change BEFORE UPDATE ON records BEGIN SELECT RAISE(ABORT, 'records are append-only'); END;
CREATE TRIGGER records_never_go BEFORE DELETE ON records BEGIN SELECT RAISE(ABORT, 'records are append-only'); END;
-- A REPLACE removes the old row without asking the trigger above.
CREATE TRIGGER records_are_never_replaced BEFORE INSERT ON records
WHEN EXISTS (SELECT 1 FROM records WHERE digest = NEW.digest) BEGIN SELECT RAISE(IGNORE); END;

-- Documents from elsewhere: kept to be looked at, never in the on-record table.
CREATE TABLE imports (
    digest TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    run_id TEXT,
    campaign_id TEXT,
    document TEXT NOT NULL,
    source TEXT NOT NULL,
    at REAL NOT NULL
);

CREATE TABLE campaigns (
    campaign_id TEXT PRIMARY KEY,
    project TEXT NOT NULL,
    source_run_id TEXT NOT NULL REFERENCES runs (run_id),
    plan_digest TEXT NOT NULL REFERENCES records (digest),
    created_at REAL NOT NULL
);

-- Each change of a campaign's life is a new row.
CREATE TABLE events (
    campaign_id TEXT NOT NULL REFERENCES campaigns (campaign_id),
    seq INTEGER NOT NULL,
    at REAL NOT NULL,
    type TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (campaign_id, seq)
);
CREATE TRIGGER events_never_change BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
CREATE TRIGGER events_never_go BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;

CREATE TABLE trials (
    trial_id TEXT PRIMARY KEY,
    campaign_id TEXT NOT NULL REFERENCES campaigns (campaign_id),
    seq INTEGER NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('control', 'probe', 'full', 'confirmation')),
    proposal_id TEXT,
    run_id TEXT NOT NULL,
    request_digest TEXT NOT NULL REFERENCES records (digest),
    started_at REAL NOT NULL,
    UNIQUE (campaign_id, seq)
);

CREATE TABLE trial_ends (
    trial_id TEXT PRIMARY KEY REFERENCES trials (trial_id),
    result_digest TEXT NOT NULL REFERENCES records (digest),
    outcome TEXT NOT NULL,
    sentence TEXT NOT NULL,
    steps INTEGER,
    peak_bytes INTEGER,
    wall_seconds REAL NOT NULL,
    gpu_seconds REAL NOT NULL,
    ended_at REAL NOT NULL
);

CREATE TRIGGER trials_never_change BEFORE UPDATE ON trials BEGIN SELECT RAISE(ABORT, 'trials are append-only'); END;
CREATE TRIGGER ends_never_change BEFORE UPDATE ON trial_ends BEGIN SELECT RAISE(ABORT, 'trials are append-only'); END;
CREATE TRIGGER trials_never_go BEFORE DELETE ON trials BEGIN SELECT RAISE(ABORT, 'trials are append-only'); END;
CREATE TRIGGER ends_never_go BEFORE DELETE ON trial_ends BEGIN SELECT RAISE(ABORT, 'trials are append-only'); END;

CREATE TABLE verdicts (
    campaign_id TEXT PRIMARY KEY REFERENCES campaigns (campaign_id),
    digest TEXT NOT NULL REFERENCES records (digest),
    status TEXT NOT NULL,
    reason_code TEXT NOT NULL,
    sentence TEXT NOT NULL,
    candidate_id TEXT,
    device_kind TEXT NOT NULL,
    at REAL NOT NULL
);
CREATE TRIGGER verdicts_never_change BEFORE UPDATE ON verdicts
BEGIN SELECT RAISE(ABORT, 'verdicts are append-only'); END;
CREATE TRIGGER verdicts_never_go BEFORE DELETE ON verdicts BEGIN SELECT RAISE(ABORT, 'verdicts are append-only'); END;
