-- PENDING | RETRYING that are due, and QUEUED once more whose message did not take: QUEUED until their message must have
-- taken. Of one sequence key the oldest only: a recovery never overtakes the failure that it ends.
WITH taken AS (
    SELECT n.id FROM execution_notification n
    WHERE n.state IN ('PENDING', 'QUEUED', 'RETRYING') AND n.due_at <= clock_timestamp()
      AND (n.sequence_key = '' OR NOT EXISTS (
          SELECT 1 FROM execution_notification o
          WHERE o.sequence_key = n.sequence_key AND o.sequence_key <> '' AND o.id < n.id
            AND o.state IN ('PENDING', 'QUEUED', 'RUNNING', 'RETRYING')))
    ORDER BY n.due_at LIMIT %(most)s
    FOR UPDATE OF n SKIP LOCKED
)
UPDATE execution_notification n
SET state = 'QUEUED', due_at = clock_timestamp() + %(lease_s)s * interval '1 second'
FROM taken
WHERE n.id = taken.id AND n.state IN ('PENDING', 'QUEUED', 'RETRYING')
RETURNING n.id;
