-- Open again whatever closed bucket holds a pending row. Hops along the pending index from bucket to bucket.
WITH RECURSIVE held AS (
    (SELECT bucket_id FROM execution_execution WHERE state = 'PENDING' AND bucket_id IS NOT NULL
     ORDER BY bucket_id LIMIT 1)
    UNION ALL
    SELECT (SELECT e.bucket_id FROM execution_execution e
            WHERE e.state = 'PENDING' AND e.bucket_id > held.bucket_id
            ORDER BY e.bucket_id LIMIT 1)
    FROM held
    WHERE held.bucket_id < floor(extract(epoch FROM clock_timestamp()) / 60)::bigint * 1024
)
UPDATE execution_bucket b SET state = 'OPEN', closed_at = NULL, triggered_at = NULL
FROM held WHERE b.id = held.bucket_id AND b.state = 'CLOSED';
