-- RUNNING → SUCCEEDED | RETRYING | FAILED for a batch of results, guarded by the claim, rows locked in id order.
-- A late success is taken from RETRYING and QUEUED too, as long as nobody has claimed the row since.
-- Whatever fails for good gets its dead letter in the same statement, and a fact for each notification rule that asks for
-- it; so does a success of a job that a rule knows to be failing.
WITH result AS (
    SELECT * FROM unnest(
        %(ids)s::uuid[], %(claim_seqs)s::int[], %(states)s::text[], %(reasons)s::text[], %(statuses)s::int[],
        %(errors)s::text[], %(error_texts)s::text[], %(durations)s::float8[], %(finished)s::timestamptz[],
        %(retry_ins)s::float8[], %(dead_reasons)s::text[]
    ) AS r(id, claim_seq, state, reason, status, error, error_text, duration_ms, finished_at, retry_in_s, dead_reason)
), held AS (
    -- With all columns of the result: another join of the two lists would compare each with each.
    SELECT result.* FROM result
    JOIN execution_execution e ON e.id = result.id AND e.claim_seq = result.claim_seq
     AND (e.state || '' = 'RUNNING' OR (result.state = 'SUCCEEDED' AND e.state || '' IN ('QUEUED', 'RETRYING')))
    ORDER BY e.id
    FOR UPDATE OF e
), changed AS (
    UPDATE execution_execution e
    SET state = held.state, state_reason = held.reason, last_status = held.status, last_error = held.error,
        last_error_text = held.error_text, last_duration_ms = held.duration_ms,
        finished_at = CASE WHEN held.state = 'RETRYING' THEN NULL ELSE held.finished_at END,
        due_at = CASE WHEN held.state = 'RETRYING'
                      THEN clock_timestamp() + held.retry_in_s * interval '1 second' ELSE e.due_at END,
        bucket_id = NULL, lease_until = NULL, worker_id = NULL, requeues = 0
    FROM held
    WHERE e.id = held.id
    RETURNING e.id, e.state, e.due_at, e.workspace_id, e.job_definition_id, e.attempt, e.last_status, e.last_error,
              e.tags, e.finished_at, coalesce(e.job_definition_id, e.schedule_id, e.id) AS job_key, held.dead_reason
), dead AS (
    INSERT INTO execution_deadletter
        (id, workspace_id, job_definition_id, reason, last_status, last_error, attempts, created_at)
    SELECT id, workspace_id, job_definition_id, dead_reason, last_status, last_error, attempt, clock_timestamp()
    FROM changed WHERE state = 'FAILED'
)
-- Only where there are notification rules:
, facts AS (
    INSERT INTO execution_notificationfact
        (rule_id, workspace_id, kind, stage, job_key, job_definition_id, subject_id, reason, error, status, at, created_at)
    SELECT r.id, c.workspace_id, 'failure',
           CASE WHEN r.events && '{failures_in_row,recovery}' THEN 'new' ELSE 'waiting' END,
           c.job_key, c.job_definition_id, c.id, c.dead_reason, c.last_error, c.last_status, c.finished_at, clock_timestamp()
    FROM changed c
    JOIN execution_notificationrule r ON r.workspace_id = c.workspace_id AND r.enabled
     AND r.events && '{failure,failures_in_row}'
     AND (cardinality(r.job_definitions) = 0 OR c.job_definition_id = ANY(r.job_definitions))
     AND (cardinality(r.tags) = 0 OR r.tags && c.tags)
    WHERE c.state = 'FAILED'
    UNION ALL
    (SELECT DISTINCT ON (s.id) s.rule_id, s.workspace_id, 'success', 'new', s.job_key, c.job_definition_id, c.id, '', '',
           c.last_status, c.finished_at, clock_timestamp()
    FROM changed c
    JOIN execution_notificationstate s ON s.job_key = c.job_key
    WHERE c.state = 'SUCCEEDED'
    ORDER BY s.id, c.finished_at DESC)
)
-- In any case:
SELECT id, CASE WHEN state = 'RETRYING' THEN due_at END FROM changed;
