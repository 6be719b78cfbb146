-- RUNNING rows of these ranges whose lease ran out or whose worker has been silent for 30 s. What had not begun to send
-- goes back at no charge; what may have begun is an unknown outcome, tried again up to its own cap, then FAILED.
WITH lost AS (
    SELECT r.id, r.begun_seq = r.claim_seq AS begun, span.chunk
    FROM unnest(%(chunks)s::uuid[], %(lasts)s::uuid[]) AS span(chunk, last)
    JOIN bulk_bulkrecord r ON r.id BETWEEN span.chunk AND span.last
    LEFT JOIN execution_worker w ON w.id = r.worker_id
    WHERE r.state = 'RUNNING'
      AND (r.lease_until < clock_timestamp() OR w.heartbeat_at < clock_timestamp() - interval '30 seconds')
    ORDER BY r.id
    FOR UPDATE OF r SKIP LOCKED
), changed AS (
    UPDATE bulk_bulkrecord r
    SET state = CASE WHEN lost.begun AND r.unknown_outcomes + 1 >= %(cap)s THEN 'FAILED' ELSE 'RETRYING' END,
        state_reason = CASE WHEN lost.begun THEN 'unknown_outcome' ELSE 'claim_lost' END,
        last_error = CASE WHEN lost.begun THEN 'unknown_outcome' ELSE r.last_error END,
        unknown_outcomes = r.unknown_outcomes + lost.begun::int,
        finished_at = CASE WHEN lost.begun AND r.unknown_outcomes + 1 >= %(cap)s THEN clock_timestamp() END,
        due_at = CASE WHEN lost.begun AND r.unknown_outcomes + 1 >= %(cap)s THEN NULL ELSE clock_timestamp() END,
        lease_until = NULL, worker_id = NULL
    FROM lost WHERE r.id = lost.id
    RETURNING r.id, r.state, lost.begun, lost.chunk
), counts AS (
    SELECT chunk, count(*) AS failed FROM changed WHERE state = 'FAILED' GROUP BY chunk
), locked AS (
    SELECT c.id, counts.failed FROM counts JOIN bulk_bulkchunk c ON c.id = counts.chunk ORDER BY c.id FOR UPDATE OF c
), counted AS (
    UPDATE bulk_bulkchunk c
    SET failed = c.failed + locked.failed,
        state = CASE WHEN c.invalid + c.succeeded + c.failed + c.cancelled + locked.failed = c.rows
                     THEN 'DONE' ELSE c.state END
    FROM locked WHERE c.id = locked.id
)
SELECT id, state, begun FROM changed;
