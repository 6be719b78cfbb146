-- RUNNING → SUCCEEDED | RETRYING | FAILED for a batch of results, guarded by the claim, rows locked in id order; then the
-- counts of their chunks, in id order too. A late success is taken from RETRYING and QUEUED as long as nobody has claimed
-- the row since.
WITH result AS (
    SELECT * FROM unnest(
        %(ids)s::uuid[], %(chunks)s::uuid[], %(claim_seqs)s::int[], %(states)s::text[], %(reasons)s::text[],
        %(statuses)s::int[], %(errors)s::text[], %(error_texts)s::text[], %(durations)s::float8[],
        %(finished)s::timestamptz[], %(retry_ins)s::float8[], %(excerpts)s::text[]
    ) AS r(id, chunk, claim_seq, state, reason, status, error, error_text, duration_ms, finished_at, retry_in_s, excerpt)
), held AS (
    SELECT result.* FROM result
    JOIN bulk_bulkrecord r ON r.id = result.id AND r.claim_seq = result.claim_seq
     AND (r.state = 'RUNNING' OR (result.state = 'SUCCEEDED' AND r.state IN ('QUEUED', 'RETRYING')))
    ORDER BY r.id
    FOR UPDATE OF r
), changed AS (
    UPDATE bulk_bulkrecord r
    SET state = held.state, state_reason = held.reason, last_status = held.status, last_error = held.error,
        last_error_text = held.error_text, last_duration_ms = held.duration_ms, response_excerpt = held.excerpt,
        finished_at = CASE WHEN held.state = 'RETRYING' THEN NULL ELSE held.finished_at END,
        due_at = CASE WHEN held.state = 'RETRYING'
                      THEN clock_timestamp() + held.retry_in_s * interval '1 second' END,
        lease_until = NULL, worker_id = NULL
    FROM held
    WHERE r.id = held.id
    RETURNING r.id, r.state, held.chunk
), counts AS (
    SELECT chunk, count(*) FILTER (WHERE state = 'SUCCEEDED') AS succeeded, count(*) FILTER (WHERE state = 'FAILED') AS failed
    FROM changed WHERE state <> 'RETRYING' GROUP BY chunk
), locked AS (
    SELECT c.id, counts.succeeded, counts.failed FROM counts JOIN bulk_bulkchunk c ON c.id = counts.chunk
    ORDER BY c.id
    FOR UPDATE OF c
), counted AS (
    UPDATE bulk_bulkchunk c
    SET succeeded = c.succeeded + locked.succeeded, failed = c.failed + locked.failed,
        state = CASE WHEN c.invalid + c.succeeded + c.failed + c.cancelled + locked.succeeded + locked.failed = c.rows
                     THEN 'DONE' ELSE c.state END
    FROM locked WHERE c.id = locked.id
)
SELECT id FROM changed;
