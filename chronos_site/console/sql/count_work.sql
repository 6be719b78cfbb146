-- What waits, workspace by workspace along their indexes, and what ended in the last minute; every count stops at a limit.
WITH mine AS MATERIALIZED (
    SELECT id FROM tenancy_workspace
    WHERE %(workspace_ids)s::uuid[] IS NULL OR id = ANY(%(workspace_ids)s::uuid[])
), pending AS MATERIALIZED (
    SELECT due_at FROM execution_execution
    WHERE state = 'PENDING' AND bucket_id < (extract(epoch FROM clock_timestamp())::bigint / 60 + 1) * 1024
      AND due_at < clock_timestamp() - %(late_after_s)s * interval '1 second'
      AND (%(workspace_ids)s::uuid[] IS NULL OR workspace_id = ANY(%(workspace_ids)s::uuid[]))
    ORDER BY bucket_id
    LIMIT %(most)s
), retrying AS MATERIALIZED (
    SELECT due.due_at FROM mine
    CROSS JOIN LATERAL (
        SELECT due_at FROM execution_execution
        WHERE workspace_id = mine.id AND state = 'RETRYING' AND held_by IS NULL
          AND due_at < clock_timestamp() - %(late_after_s)s * interval '1 second'
        ORDER BY due_at
        LIMIT %(most)s
    ) due
    LIMIT %(most)s
), ended AS MATERIALIZED (
    SELECT state FROM execution_execution
    WHERE finished_at >= clock_timestamp() - interval '1 minute'
      AND (%(workspace_ids)s::uuid[] IS NULL OR workspace_id = ANY(%(workspace_ids)s::uuid[]))
    LIMIT %(most)s
), held AS MATERIALIZED (
    SELECT state FROM execution_execution
    WHERE state IN ('QUEUED', 'RUNNING')
      AND (%(workspace_ids)s::uuid[] IS NULL OR workspace_id = ANY(%(workspace_ids)s::uuid[]))
    LIMIT %(most)s
)
SELECT
    least((SELECT min(due_at) FROM pending), (SELECT min(due_at) FROM retrying)) AS oldest_due_at,
    (SELECT count(*) FROM pending) + (SELECT count(*) FROM retrying) AS overdue,
    (SELECT count(*) FROM held WHERE state = 'QUEUED') AS queued,
    (SELECT count(*) FROM held WHERE state = 'RUNNING') AS running,
    (SELECT count(*) FROM mine CROSS JOIN LATERAL (
        SELECT 1 FROM execution_execution WHERE workspace_id = mine.id AND state = 'RETRYING' LIMIT %(most)s
     ) row_of LIMIT %(most)s) AS retrying,
    (SELECT count(*) FROM mine CROSS JOIN LATERAL (
        SELECT 1 FROM execution_deadletter WHERE workspace_id = mine.id AND status = 'open' LIMIT %(most)s
     ) letter) AS dead_letters,
    (SELECT count(*) FROM ended WHERE state = 'SUCCEEDED') AS delivered_last_minute,
    (SELECT count(*) FROM ended WHERE state = 'FAILED') AS failed_last_minute;
