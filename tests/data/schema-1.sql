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
    receipt TEXT
);
CREATE INDEX runs_by_start ON runs (started_at DESC);
CREATE INDEX runs_by_project ON runs (project, started_at DESC);

CREATE TABLE metrics (
    run_id TEXT NOT NULL REFERENCES runs (run_id),
    name TEXT NOT NULL,
    step INTEGER,
    value REAL,
    -- SQLite stores NaN as NULL; the word keeps it apart from a missing value.
    special TEXT CHECK (special IN ('nan', 'inf', '-inf')),
    at REAL NOT NULL
);
CREATE INDEX metrics_by_run ON metrics (run_id, name, step);

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
    device_reserved_bytes INTEGER
);
CREATE INDEX samples_by_run ON samples (run_id, at);

CREATE TABLE artifacts (
    run_id TEXT NOT NULL REFERENCES runs (run_id),
    path TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
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

-- The read model: what lists, data frames and pages show. Units stand in the column names.
CREATE VIEW run_summary AS
SELECT
    r.run_id, r.project, r.role, r.status, r.end_reason, r.started_at, r.ended_at,
    COALESCE(r.ended_at, r.heartbeat_at) - r.started_at AS duration_s,
    r.last_step, COALESCE(json_extract(r.device, '$.kind'), 'none') AS device_kind,
    (SELECT c.failure_class FROM capsules c WHERE c.run_id = r.run_id ORDER BY c.capsule_id DESC LIMIT 1) AS failure_class,
    (SELECT MAX(s.rss_bytes) FROM samples s WHERE s.run_id = r.run_id) AS peak_rss_bytes,
    (SELECT MAX(COALESCE(s.device_reserved_bytes, s.device_allocated_bytes)) FROM samples s WHERE s.run_id = r.run_id)
        AS peak_device_bytes,
    r.config, r.campaign_id, r.trial_id
FROM runs r;

CREATE VIEW metric_points AS
SELECT
    m.run_id, r.project, m.name, m.step,
    CASE m.special WHEN 'inf' THEN 9e999 WHEN '-inf' THEN -9e999 ELSE m.value END AS value,
    m.special, m.at, m.rowid AS point
FROM metrics m JOIN runs r USING (run_id);

CREATE VIEW failure_summary AS
SELECT
    c.capsule_id, c.run_id, r.project, c.failure_class, c.subkind, c.sentence, c.created_at,
    c.resolved_at, c.resolved_by, c.resolved_note, r.role, COALESCE(json_extract(r.device, '$.kind'), 'none') AS device_kind
FROM capsules c JOIN runs r USING (run_id);

CREATE VIEW campaign_summary AS
SELECT
    c.campaign_id, c.project, c.source_run_id, c.created_at,
    (SELECT e.type FROM events e WHERE e.campaign_id = c.campaign_id
        AND e.type IN ('prepared', 'started', 'resumed', 'ended') ORDER BY e.seq DESC LIMIT 1) AS last_change,
    v.status, v.reason_code, v.sentence, v.candidate_id, v.device_kind, v.at AS ended_at,
    (SELECT COUNT(*) FROM trials t WHERE t.campaign_id = c.campaign_id) AS trials,
    (SELECT SUM(x.wall_seconds) FROM trials t JOIN trial_ends x USING (trial_id) WHERE t.campaign_id = c.campaign_id)
        AS trial_wall_s
FROM campaigns c LEFT JOIN verdicts v USING (campaign_id);

CREATE VIEW trial_summary AS
SELECT
    t.trial_id, t.campaign_id, t.seq, t.role, t.proposal_id, t.run_id, t.started_at, x.ended_at,
    COALESCE(x.outcome, 'running') AS outcome, x.steps, x.peak_bytes, x.wall_seconds AS wall_s,
    x.gpu_seconds AS gpu_s, x.sentence
FROM trials t LEFT JOIN trial_ends x USING (trial_id);

CREATE VIEW cell_history AS
SELECT session_id, seq, run_id, execution_count, cell_id, source, status, error_type, error_message, started_at, seconds
FROM cells;
