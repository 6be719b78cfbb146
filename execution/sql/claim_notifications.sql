-- QUEUED → RUNNING for the notifications of one message. Others are left out: the message was a double.
WITH wanted AS (
    SELECT id FROM execution_notification WHERE id = ANY(%(ids)s) AND state || '' = 'QUEUED' ORDER BY id FOR UPDATE
)
UPDATE execution_notification n
SET state = 'RUNNING', claim_seq = n.claim_seq + 1, worker_id = %(worker_id)s, due_at = clock_timestamp(),
    lease_until = clock_timestamp() + (%(timeout_s)s + 30) * interval '1 second'
FROM wanted
WHERE n.id = wanted.id
RETURNING n.id, n.workspace_id, n.channel_kind, n.target, n.payload, n.claim_seq, n.attempt, n.started_at, n.lease_until,
          n.created_at, n.state_reason, n.flow_wait_s, n.traceparent,
          (SELECT w.secret_namespaces FROM tenancy_workspace w WHERE w.id = n.workspace_id) AS secret_namespaces,
          clock_timestamp() AS read_at;
