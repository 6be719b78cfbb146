-- RUNNING rows whose lease ran out or whose worker has been silent for 30 s. What had not begun to send goes back at no
-- charge; what may have begun is an unknown outcome, tried again up to its own cap, then a dead letter.
WITH lost AS (
    SELECT e.id, e.begun_seq = e.claim_seq AS begun
    FROM execution_execution e
    LEFT JOIN execution_worker w ON w.id = e.worker_id
    WHERE e.state = 'RUNNING'
      AND (e.lease_until < clock_timestamp() OR w.heartbeat_at < clock_timestamp() - interval '30 seconds')
    ORDER BY e.lease_until
    LIMIT %(most)s
    FOR UPDATE OF e SKIP LOCKED
), changed AS (
    UPDATE execution_execution e
    SET state = CASE
            WHEN lost.begun AND e.unknown_outcomes + 1 >= %(cap)s THEN 'FAILED'
            WHEN NOT lost.begun AND e.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
            ELSE 'RETRYING' END,
        state_reason = CASE WHEN lost.begun THEN 'unknown_outcome' ELSE 'claim_lost' END,
        last_error = CASE WHEN lost.begun THEN 'unknown_outcome' ELSE e.last_error END,
        unknown_outcomes = e.unknown_outcomes + lost.begun::int,
        finished_at = CASE
            WHEN lost.begun AND e.unknown_outcomes + 1 >= %(cap)s
              OR NOT lost.begun AND e.cancel_requested_at IS NOT NULL THEN clock_timestamp() END,
        due_at = greatest(e.due_at, clock_timestamp()),
        bucket_id = NULL, lease_until = NULL, worker_id = NULL
    FROM lost WHERE e.id = lost.id
    RETURNING e.id, e.state, lost.begun, e.workspace_id, e.job_definition_id, e.last_status, e.last_error, e.attempt,
              e.tags, e.finished_at, coalesce(e.job_definition_id, e.schedule_id, e.id) AS job_key,
              -- As execution.domain.events.ROW.
              json_build_object('state', e.state, 'attempt', e.attempt, 'at', clock_timestamp(), 'due_at', e.due_at,
                                'workspace', e.workspace_id, 'job_definition', e.job_definition_id, 'schedule', e.schedule_id,
                                'execution', e.id, 'scheduled_for', e.scheduled_for)::text AS told
), dead AS (
    INSERT INTO execution_deadletter
        (id, workspace_id, job_definition_id, reason, last_status, last_error, attempts, created_at)
    SELECT id, workspace_id, job_definition_id, 'unknown_outcome', last_status, last_error, attempt, clock_timestamp()
    FROM changed WHERE state = 'FAILED'
), facts AS (
    -- As in write_results.sql.
    INSERT INTO execution_notificationfact
        (rule_id, workspace_id, kind, stage, job_key, job_definition_id, subject_id, reason, error, status, at, created_at)
    SELECT r.id, c.workspace_id, 'failure',
           CASE WHEN r.events && '{failures_in_row,recovery}' THEN 'new' ELSE 'waiting' END,
           c.job_key, c.job_definition_id, c.id, 'unknown_outcome', c.last_error, c.last_status, c.finished_at,
           clock_timestamp()
    FROM changed c
    JOIN execution_notificationrule r ON r.workspace_id = c.workspace_id AND r.enabled
     AND r.events && '{failure,failures_in_row}'
     AND (cardinality(r.job_definitions) = 0 OR c.job_definition_id = ANY(r.job_definitions))
     AND (cardinality(r.tags) = 0 OR r.tags && c.tags)
    WHERE c.state = 'FAILED'
)
SELECT id, state, begun, told FROM changed;
