-- RUNNING → SUCCEEDED | RETRYING | FAILED for a batch of results, guarded by the claim, rows locked in id order.
-- A late success is taken from RETRYING and QUEUED too, as long as nobody has claimed the row since.
WITH result AS (
    SELECT * FROM unnest(
        %(ids)s::uuid[], %(claim_seqs)s::int[], %(states)s::text[], %(reasons)s::text[], %(statuses)s::int[],
        %(errors)s::text[], %(error_texts)s::text[], %(durations)s::float8[], %(finished)s::timestamptz[],
        %(retry_ins)s::float8[]
    ) AS r(id, claim_seq, state, reason, status, error, error_text, duration_ms, finished_at, retry_in_s)
), held AS (
    SELECT result.* FROM result
    JOIN execution_notification n ON n.id = result.id AND n.claim_seq = result.claim_seq
     AND (n.state || '' = 'RUNNING' OR (result.state = 'SUCCEEDED' AND n.state || '' IN ('QUEUED', 'RETRYING')))
    ORDER BY n.id
    FOR UPDATE OF n
)
UPDATE execution_notification n
SET state = held.state, state_reason = held.reason, last_status = held.status, last_error = held.error,
    last_error_text = held.error_text, last_duration_ms = held.duration_ms,
    finished_at = CASE WHEN held.state = 'RETRYING' THEN NULL ELSE held.finished_at END,
    due_at = CASE WHEN held.state = 'RETRYING'
                  THEN clock_timestamp() + held.retry_in_s * interval '1 second' ELSE n.due_at END,
    lease_until = NULL, worker_id = NULL
FROM held
WHERE n.id = held.id
RETURNING n.id;
