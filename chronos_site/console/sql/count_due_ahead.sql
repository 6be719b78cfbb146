-- Executions that wait for each of the next minutes, counted up to a limit. Reads ranges of the index of buckets.
SELECT m.minute, found.waiting
FROM generate_series(%(first)s::bigint, %(first)s::bigint + %(minutes)s - 1) AS m(minute)
CROSS JOIN LATERAL (
    SELECT count(*) AS waiting FROM (
        SELECT 1 FROM execution_execution
        WHERE state = 'PENDING' AND bucket_id >= m.minute * 1024 AND bucket_id < (m.minute + 1) * 1024
          AND (%(workspace_ids)s::uuid[] IS NULL OR workspace_id = ANY(%(workspace_ids)s::uuid[]))
        LIMIT %(most)s
    ) counted
) found;
