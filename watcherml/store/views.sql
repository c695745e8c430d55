-- The read model: what lists, data frames and pages show, and any SQLite tool can read. Units stand in the column
-- names; times are seconds since 1970 UTC; columns that hold JSON are config and changes.

-- What lists are sorted, filtered and summed up by, so that none looks at the samples or points of other runs.
CREATE INDEX IF NOT EXISTS runs_by_status ON runs (status, started_at DESC);
CREATE INDEX IF NOT EXISTS samples_by_rss ON samples (run_id, rss_bytes);
CREATE INDEX IF NOT EXISTS samples_by_device ON samples (run_id, COALESCE(device_reserved_bytes, device_allocated_bytes));
CREATE INDEX IF NOT EXISTS capsules_by_time ON capsules (created_at DESC);
CREATE INDEX IF NOT EXISTS cells_by_start ON cells (started_at, seq);
CREATE INDEX IF NOT EXISTS campaigns_by_source ON campaigns (source_run_id);
CREATE INDEX IF NOT EXISTS campaigns_by_plan ON campaigns (plan_digest);
CREATE INDEX IF NOT EXISTS plans_on_record ON records (at) WHERE kind = 'recovery-plan';

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

-- Proposals of every plan on record, once a campaign that the plan was started in. Of several trials the last one's
-- outcome stands here.
CREATE VIEW proposal_summary AS
SELECT
    d.digest AS plan_digest, c.campaign_id,
    json_extract(d.document, '$.value.source.project') AS project,
    json_extract(d.document, '$.value.source.run_id') AS source_run_id, p.key AS seq,
    json_extract(p.value, '$.proposal_id') AS proposal_id,
    json_extract(p.value, '$.title') AS title,
    json_extract(p.value, '$.changes') AS changes,
    json_extract(p.value, '$.environment') AS environment,
    json_extract(p.value, '$.authority') AS authority,
    json_extract(p.value, '$.risk') AS risk,
    json_extract(p.value, '$.semantic') AS semantic,
    json_extract(p.value, '$.effective_batch') AS effective_batch,
    json_extract(p.value, '$.predicted_peak_bytes') AS predicted_peak_bytes,
    (SELECT COUNT(*) FROM trials t
        WHERE t.campaign_id = c.campaign_id AND t.proposal_id = json_extract(p.value, '$.proposal_id')) AS trials,
    (SELECT COALESCE(x.outcome, 'running') FROM trials t LEFT JOIN trial_ends x USING (trial_id)
        WHERE t.campaign_id = c.campaign_id AND t.proposal_id = json_extract(p.value, '$.proposal_id')
        ORDER BY t.seq DESC LIMIT 1) AS outcome,
    COALESCE((SELECT v.status = 'verified' AND v.candidate_id = json_extract(p.value, '$.proposal_id')
        FROM verdicts v WHERE v.campaign_id = c.campaign_id), 0) AS verified,
    d.at AS created_at
FROM records d
LEFT JOIN campaigns c ON c.plan_digest = d.digest
JOIN json_each(d.document, '$.value.proposals') p
WHERE d.kind = 'recovery-plan';

CREATE VIEW sample_points AS
SELECT
    s.run_id, r.project, s.at, s.at - r.started_at AS since_start_s, s.cpu_percent, s.tree_cpu_percent, s.rss_bytes,
    s.tree_rss_bytes, s.host_used_bytes, s.device_kind, s.device_allocated_bytes, s.device_reserved_bytes
FROM samples s JOIN runs r USING (run_id);

CREATE VIEW gpu_points AS
SELECT
    g.run_id, r.project, g.at, g.at - r.started_at AS since_start_s, g.gpu_index, g.uuid, g.utilization_percent,
    g.used_bytes, g.total_bytes, g.own_bytes
FROM gpu_samples g JOIN runs r USING (run_id);

CREATE VIEW cell_history AS
SELECT session_id, seq, run_id, execution_count, cell_id, source, status, error_type, error_message, started_at, seconds
FROM cells;
