-- Lock the due PENDING rows of one bucket, workspaces in turn: each that has any gets an equal share of the batch.
-- The recursive part hops from workspace to workspace along the index instead of reading every row. Who has nothing due
-- yet gets no share: else the rows of a later second would make this second's batches small.
WITH RECURSIVE tenant AS (
    (SELECT workspace_id FROM execution_execution
     WHERE bucket_id = %(bucket_id)s AND state = 'PENDING'
     ORDER BY workspace_id LIMIT 1)
    UNION ALL
    SELECT (SELECT e.workspace_id FROM execution_execution e
            WHERE e.bucket_id = %(bucket_id)s AND e.state = 'PENDING' AND e.workspace_id > tenant.workspace_id
            ORDER BY e.workspace_id LIMIT 1)
    FROM tenant WHERE tenant.workspace_id IS NOT NULL
),
busy AS MATERIALIZED (
    SELECT tenant.workspace_id FROM tenant
    WHERE EXISTS (
        SELECT 1 FROM execution_execution e
        WHERE e.bucket_id = %(bucket_id)s AND e.state = 'PENDING' AND e.workspace_id = tenant.workspace_id
          AND e.due_at <= clock_timestamp() + %(horizon_s)s * interval '1 second'
    )
)
SELECT due.id, due.job_definition_id, due.expired, due.on_deadline, due.concurrency_key, due.overlap, due.tried
FROM busy
CROSS JOIN LATERAL (
    SELECT e.id, e.job_definition_id, e.due_at, e.on_deadline, e.concurrency_key, e.overlap, e.attempt > 0 AS tried,
           -- A retry that a pause of its job had parked has met the deadline of its start.
           e.attempt = 0 AND coalesce(e.start_deadline <= clock_timestamp(), false) AS expired
    FROM execution_execution e
    WHERE e.bucket_id = %(bucket_id)s AND e.state = 'PENDING' AND e.workspace_id = busy.workspace_id
      AND e.due_at <= clock_timestamp() + %(horizon_s)s * interval '1 second'
    ORDER BY e.due_at
    LIMIT greatest(1, %(batch)s / (SELECT count(*) FROM busy))
    FOR UPDATE SKIP LOCKED
) due
ORDER BY due.due_at;
