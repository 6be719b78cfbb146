-- RUNNING → SUCCEEDED | FAILED for a batch of results, guarded by the claim, rows locked in id order.
WITH result AS (
    SELECT * FROM unnest(
        %(ids)s::uuid[], %(claim_seqs)s::int[], %(states)s::text[], %(reasons)s::text[], %(statuses)s::int[],
        %(errors)s::text[], %(error_texts)s::text[], %(durations)s::float8[], %(finished)s::timestamptz[]
    ) AS r(id, claim_seq, state, reason, status, error, error_text, duration_ms, finished_at)
), held AS (
    SELECT e.id FROM result
    JOIN execution_execution e ON e.id = result.id AND e.claim_seq = result.claim_seq AND e.state = 'RUNNING'
    ORDER BY e.id
    FOR UPDATE OF e
)
UPDATE execution_execution e
SET state = result.state, state_reason = result.reason, last_status = result.status, last_error = result.error,
    last_error_text = result.error_text, last_duration_ms = result.duration_ms, finished_at = result.finished_at,
    lease_until = NULL
FROM result JOIN held ON held.id = result.id
WHERE e.id = result.id
RETURNING e.id;
