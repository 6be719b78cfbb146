-- PENDING | QUEUED → RUNNING for the rows of one message, while their job runs. Others are left out: a double, or a pause.
WITH wanted AS (
    SELECT r.id, j.timeout_s
    FROM bulk_bulkrecord r
    JOIN bulk_bulkjob j ON j.id = r.bulk_job_id
    JOIN execution_jobdefinition d ON d.id = j.job_definition_id
    WHERE r.id = ANY(%(ids)s) AND r.state IN ('PENDING', 'QUEUED')
      AND j.state = 'RUNNING' AND j.cancel_requested_at IS NULL AND d.paused_at IS NULL
    ORDER BY r.id
    FOR UPDATE OF r
)
UPDATE bulk_bulkrecord r
SET state = 'RUNNING', claim_seq = r.claim_seq + 1, worker_id = %(worker_id)s, due_at = NULL,
    lease_until = clock_timestamp() + (wanted.timeout_s + 30) * interval '1 second'
FROM wanted
WHERE r.id = wanted.id
RETURNING r.id, r.bulk_job_id, r.values, r.claim_seq, r.attempt, r.attempts_before, r.started_at, r.lease_until,
          r.state_reason, r.flow_wait_s, clock_timestamp() AS read_at;
