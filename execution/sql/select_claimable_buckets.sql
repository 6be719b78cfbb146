-- Mark as triggered, and return, open buckets that hold a due PENDING row and were not triggered just now: the oldest of
-- each workspace, then the second of each, … The guard is cleared when a fan-out ends, so a busy bucket is not triggered
-- twice.
WITH hit AS (
    SELECT b.id, due.workspace_id
    FROM execution_bucket b
    CROSS JOIN LATERAL (
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
        SELECT tenant.workspace_id FROM tenant
        WHERE EXISTS (
            SELECT 1 FROM execution_execution e
            WHERE e.bucket_id = b.id AND e.state = 'PENDING' AND e.workspace_id = tenant.workspace_id
              AND e.due_at <= clock_timestamp() + %(horizon_s)s * interval '1 second'
        )
    ) due
    WHERE b.state = 'OPEN' AND b.id < %(end_bucket)s
      AND (b.triggered_at IS NULL OR b.triggered_at < clock_timestamp() - interval '5 seconds')
), picked AS (
    SELECT ranked.id
    FROM (SELECT id, row_number() OVER (PARTITION BY workspace_id ORDER BY id) AS turn FROM hit) ranked
    GROUP BY ranked.id
    ORDER BY min(ranked.turn), ranked.id
    LIMIT %(most)s
), locked AS (
    SELECT id FROM execution_bucket
    WHERE id IN (SELECT id FROM picked)
      AND (triggered_at IS NULL OR triggered_at < clock_timestamp() - interval '5 seconds')
    ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE execution_bucket b SET triggered_at = clock_timestamp()
FROM locked WHERE b.id = locked.id
RETURNING b.id;
