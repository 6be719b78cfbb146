-- RETRYING → QUEUED for what is due now or within the look-ahead, longest due first.
WITH due AS (
    SELECT id FROM execution_execution
    WHERE state = 'RETRYING' AND held_by IS NULL AND due_at <= clock_timestamp() + %(horizon_s)s * interval '1 second'
    ORDER BY due_at
    LIMIT %(most)s
    FOR UPDATE SKIP LOCKED
)
UPDATE execution_execution e
SET state = 'QUEUED', lease_until = clock_timestamp() + %(lease)s * interval '1 second'
FROM due WHERE e.id = due.id
RETURNING e.id;
