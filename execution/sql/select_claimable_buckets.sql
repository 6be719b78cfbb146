-- Mark as triggered, and return, the open buckets that hold a due PENDING row and were not triggered just now.
-- Oldest minute first. The guard is cleared when a fan-out ends, so a busy bucket is not triggered twice.
WITH claimable AS (
    SELECT b.id FROM execution_bucket b
    WHERE b.state = 'OPEN' AND b.id < %(end_bucket)s
      AND (b.triggered_at IS NULL OR b.triggered_at < clock_timestamp() - interval '5 seconds')
      AND EXISTS (
          WITH RECURSIVE tenant AS (
              (SELECT workspace_id FROM execution_execution
               WHERE bucket_id = b.id AND state = 'PENDING'
               ORDER BY workspace_id LIMIT 1)
              UNION ALL
              SELECT (SELECT e.workspace_id FROM execution_execution e
                      WHERE e.bucket_id = b.id AND e.state = 'PENDING' AND e.workspace_id > tenant.workspace_id
                      ORDER BY e.workspace_id LIMIT 1)
              FROM tenant WHERE tenant.workspace_id IS NOT NULL
          )
          SELECT 1 FROM tenant CROSS JOIN LATERAL (
              SELECT 1 FROM execution_execution e
              WHERE e.bucket_id = b.id AND e.state = 'PENDING' AND e.workspace_id = tenant.workspace_id
                AND e.due_at <= clock_timestamp() + %(horizon_s)s * interval '1 second'
              LIMIT 1
          ) hit
      )
    ORDER BY b.id
    LIMIT %(most)s
    FOR NO KEY UPDATE OF b SKIP LOCKED
)
UPDATE execution_bucket b SET triggered_at = clock_timestamp()
FROM claimable WHERE b.id = claimable.id
RETURNING b.id;
