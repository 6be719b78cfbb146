-- Lock what is due for another attempt, workspaces in turn as select_due has them. The caller divides it between
-- queue_locked_retries and hold_retrying.
WITH RECURSIVE tenant AS (
    (SELECT workspace_id FROM execution_execution
     WHERE state = 'RETRYING' AND held_by IS NULL
     ORDER BY workspace_id LIMIT 1)
    UNION ALL
    SELECT (SELECT e.workspace_id FROM execution_execution e
            WHERE e.state = 'RETRYING' AND e.held_by IS NULL AND e.workspace_id > tenant.workspace_id
            ORDER BY e.workspace_id LIMIT 1)
    FROM tenant WHERE tenant.workspace_id IS NOT NULL
),
busy AS MATERIALIZED (
    SELECT tenant.workspace_id FROM tenant
    WHERE EXISTS (
        SELECT 1 FROM execution_execution e
        WHERE e.state = 'RETRYING' AND e.held_by IS NULL AND e.workspace_id = tenant.workspace_id
          AND e.due_at <= clock_timestamp() + %(horizon_s)s * interval '1 second'
    )
)
SELECT row.id, busy.workspace_id, row.target
FROM busy
CROSS JOIN LATERAL (
    SELECT e.id, e.target, e.due_at FROM execution_execution e
    WHERE e.state = 'RETRYING' AND e.held_by IS NULL AND e.workspace_id = busy.workspace_id
      AND e.due_at <= clock_timestamp() + %(horizon_s)s * interval '1 second'
    ORDER BY e.due_at
    LIMIT greatest(1, %(most)s / (SELECT count(*) FROM busy))
    FOR UPDATE SKIP LOCKED
) row
ORDER BY row.due_at;
