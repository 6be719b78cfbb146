-- RUNNING notifications whose lease ran out or whose worker has been silent for 30 s. What had not begun to send goes
-- back at no charge; what may have begun is an unknown outcome, tried again up to its own cap, then FAILED.
WITH lost AS (
    SELECT n.id, n.begun_seq = n.claim_seq AS begun
    FROM execution_notification n
    LEFT JOIN execution_worker w ON w.id = n.worker_id
    WHERE n.state = 'RUNNING'
      AND (n.lease_until < clock_timestamp() OR w.heartbeat_at < clock_timestamp() - interval '30 seconds')
    FOR UPDATE OF n SKIP LOCKED
)
UPDATE execution_notification n
SET state = CASE WHEN lost.begun AND n.unknown_outcomes + 1 >= %(cap)s THEN 'FAILED' ELSE 'RETRYING' END,
    state_reason = CASE WHEN lost.begun THEN 'unknown_outcome' ELSE 'claim_lost' END,
    last_error = CASE WHEN lost.begun THEN 'unknown_outcome' ELSE n.last_error END,
    unknown_outcomes = n.unknown_outcomes + lost.begun::int,
    finished_at = CASE WHEN lost.begun AND n.unknown_outcomes + 1 >= %(cap)s THEN clock_timestamp() END,
    due_at = clock_timestamp(), lease_until = NULL, worker_id = NULL
FROM lost WHERE n.id = lost.id
RETURNING n.id;
