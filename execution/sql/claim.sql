-- QUEUED → RUNNING for the rows of one message. A row that is no longer QUEUED is left out: the message was a double.
-- Plain FOR UPDATE, not SKIP LOCKED: a row that somebody holds for a moment must not lose its message.
WITH wanted AS (
    SELECT id FROM execution_execution
    WHERE id = ANY(%(ids)s) AND state || '' = 'QUEUED'
    ORDER BY id
    FOR UPDATE
)
UPDATE execution_execution e
SET state = 'RUNNING',
    claim_seq = e.claim_seq + 1,
    worker_id = %(worker_id)s,
    lease_until = greatest(e.due_at, clock_timestamp()) + (e.timeout_s + 30) * interval '1 second'
FROM wanted
WHERE e.id = wanted.id
RETURNING e.id, e.claim_seq, e.attempt, e.started_at, e.workspace_id, e.job_definition_id, e.schedule_id, e.scheduled_for, e.due_at,
          e.lease_until, e.concurrency_key, e.kind, e.target, e.payload, e.timeout_s, e.retry, e.traceparent,
          e.limits, e.state_reason, e.flow_wait_s,
          (SELECT w.secret_namespaces FROM tenancy_workspace w WHERE w.id = e.workspace_id) AS secret_namespaces,
          clock_timestamp() AS read_at;
