-- Rows that wait for the end of another with their key, and whose key is free now, go back into the bucket of this
-- minute (shard 0), which is made or opened. No keys: every parked row is looked at.
WITH parked AS (
    SELECT e.id FROM execution_execution e
    WHERE e.state = 'PENDING' AND e.park_reason = 'overlap'
      AND (%(keys)s::text[] IS NULL OR e.concurrency_key = ANY(%(keys)s))
      AND NOT EXISTS (
          SELECT 1 FROM execution_execution a
          WHERE a.concurrency_key = e.concurrency_key AND a.state IN ('QUEUED', 'RUNNING', 'RETRYING')
      )
    ORDER BY e.id
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
), bucket AS (
    INSERT INTO execution_bucket (id, state, opened_at)
    SELECT floor(extract(epoch FROM clock_timestamp()) / 60)::bigint * 1024, 'OPEN', clock_timestamp()
    WHERE EXISTS (SELECT 1 FROM parked)
    ON CONFLICT (id) DO UPDATE SET closed_at = NULL, triggered_at = NULL, state = 'OPEN'
    RETURNING id
)
UPDATE execution_execution e
SET bucket_id = bucket.id, due_at = greatest(e.due_at, clock_timestamp()), park_reason = ''
FROM parked, bucket
WHERE e.id = parked.id
RETURNING e.id;
