-- What wants to be picked up and has not been: how many PENDING and RETRYING rows are due for longer than the grace, at
-- most `most` of each, and the seconds since the oldest was due. What is parked or held by a dispatch switch is left out.
-- Readers: the gauges of the site. By execution_pending (whole minutes that are over) and execution_retrying (in turn).
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT clock_timestamp() - %(grace_s)s * interval '1 second' AS until
), limits AS MATERIALIZED (
    SELECT until, (floor(extract(epoch FROM until) / 60)::bigint + 1) * 1024 AS end_bucket FROM clock
), pending AS MATERIALIZED (
    SELECT e.due_at FROM execution_execution e
    WHERE e.state = 'PENDING' AND e.held_by IS NULL
      AND e.bucket_id < (SELECT end_bucket FROM limits) AND e.due_at < (SELECT until FROM limits)
    ORDER BY e.bucket_id
    LIMIT %(most)s
), tenant AS (
    (SELECT workspace_id FROM execution_execution
     WHERE state = 'RETRYING' AND held_by IS NULL
     ORDER BY workspace_id LIMIT 1)
    UNION ALL
    SELECT (SELECT e.workspace_id FROM execution_execution e
            WHERE e.state = 'RETRYING' AND e.held_by IS NULL AND e.workspace_id > tenant.workspace_id
            ORDER BY e.workspace_id LIMIT 1)
    FROM tenant WHERE tenant.workspace_id IS NOT NULL
), retrying AS MATERIALIZED (
    SELECT row.due_at
    FROM tenant
    CROSS JOIN LATERAL (
        SELECT e.due_at FROM execution_execution e
        WHERE e.state = 'RETRYING' AND e.held_by IS NULL AND e.workspace_id = tenant.workspace_id
          AND e.due_at < (SELECT until FROM limits)
        ORDER BY e.due_at
        LIMIT %(most)s
    ) row
    LIMIT %(most)s
)
SELECT 'PENDING', count(*), extract(epoch FROM clock_timestamp() - min(due_at))::float8 FROM pending
UNION ALL
SELECT 'RETRYING', count(*), extract(epoch FROM clock_timestamp() - min(due_at))::float8 FROM retrying;
