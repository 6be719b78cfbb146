-- QUEUED rows whose lease ran out: their message was lost. The lease doubles, so that a queue that is merely long is not
-- filled with doubles of itself.
WITH late AS (
    SELECT id FROM execution_execution
    WHERE state = 'QUEUED' AND lease_until < clock_timestamp()
    ORDER BY lease_until
    LIMIT %(most)s
    FOR UPDATE SKIP LOCKED
)
UPDATE execution_execution e
SET requeues = least(e.requeues + 1, 100),
    lease_until = clock_timestamp() + %(lease)s * 2 ^ least(e.requeues + 1, 6) * interval '1 second'
FROM late WHERE e.id = late.id
RETURNING e.id;
