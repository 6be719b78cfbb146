-- PENDING | QUEUED | RETRYING → CANCELLED for the rows of these chunks; those that a worker holds end by themselves.
WITH gone AS (
    SELECT r.id, span.chunk
    FROM unnest(%(chunks)s::uuid[], %(lasts)s::uuid[]) AS span(chunk, last)
    JOIN bulk_bulkrecord r ON r.id BETWEEN span.chunk AND span.last
    WHERE r.state IN ('PENDING', 'QUEUED', 'RETRYING')
    ORDER BY r.id
    FOR UPDATE OF r
), changed AS (
    UPDATE bulk_bulkrecord r
    SET state = 'CANCELLED', state_reason = 'cancelled', due_at = NULL, lease_until = NULL, finished_at = clock_timestamp()
    FROM gone WHERE r.id = gone.id
    RETURNING gone.chunk
), counts AS (
    SELECT chunk, count(*) AS cancelled FROM changed GROUP BY chunk
), locked AS (
    SELECT c.id, counts.cancelled FROM counts JOIN bulk_bulkchunk c ON c.id = counts.chunk ORDER BY c.id FOR UPDATE OF c
)
UPDATE bulk_bulkchunk c
SET cancelled = c.cancelled + locked.cancelled,
    lease_until = coalesce(c.lease_until, clock_timestamp() + %(lease_s)s * interval '1 second'),
    state = CASE WHEN c.invalid + c.succeeded + c.failed + c.cancelled + locked.cancelled = c.rows
                 THEN 'DONE' ELSE 'QUEUED' END
FROM locked WHERE c.id = locked.id;
