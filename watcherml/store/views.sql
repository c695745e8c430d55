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
    r.config, r.campaign_id, r.trial_id, r.title, r.origin
FROM runs r;

-- The ranges lead: CROSS JOIN keeps SQLite from looking at every point first.
CREATE VIEW metric_points AS
SELECT
    g.run_id, r.project, n.name, m.step, m.value,
    CASE WHEN m.value IS NULL THEN 'nan' WHEN m.value = 9e999 THEN 'inf' WHEN m.value = -9e999 THEN '-inf' END AS special,
    m.at, m.rowid AS point
FROM metric_ranges g
CROSS JOIN metrics m ON m.rowid BETWEEN g.first_point AND g.last_point
JOIN metric_names n ON n.source_id = g.source_id AND n.key = m.key
JOIN runs r ON r.run_id = g.run_id;

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
