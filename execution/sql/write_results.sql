-- RUNNING → SUCCEEDED | RETRYING | FAILED for a batch of results, guarded by the claim, rows locked in id order.
-- A late success is taken from RETRYING and QUEUED too, as long as nobody has claimed the row since.
-- Whatever fails for good gets its dead letter in the same statement.
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
              held.dead_reason
), dead AS (
    INSERT INTO execution_deadletter
        (id, workspace_id, job_definition_id, reason, last_status, last_error, attempts, created_at)
    SELECT id, workspace_id, job_definition_id, dead_reason, last_status, last_error, attempt, clock_timestamp()
    FROM changed WHERE state = 'FAILED'
)
SELECT id, CASE WHEN state = 'RETRYING' THEN due_at END FROM changed;
