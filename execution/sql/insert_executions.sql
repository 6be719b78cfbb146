-- Insert executions of any number of workspaces in one statement. An occurrence that is there already is left alone.
-- The rows come as one JSON document: a list for each column would cost the caller more than the insert itself.
INSERT INTO execution_execution AS e (
    id, workspace_id, job_definition_id, job_version, schedule_id, scheduled_for, run_no, replay_of, trigger,
    kind, target, payload, timeout_s, retry, limits, tags, traceparent,
    state, state_reason, due_at, start_deadline, on_deadline, bucket_id, park_reason, concurrency_key, overlap,
    claim_seq, begun_seq, requeues, unknown_outcomes, attempt, last_error, last_error_text, created_at, finished_at
)
SELECT
    n.id, n.workspace_id, n.job_definition_id, n.job_version, n.schedule_id, n.scheduled_for, n.run_no, n.replay_of,
    n.trigger, n.kind, n.target, n.payload, n.timeout_s, n.retry, n.limits,
    ARRAY(SELECT json_array_elements_text(n.tags)), n.traceparent,
    n.state, n.state_reason, n.due_at, n.start_deadline, n.on_deadline, n.bucket_id, '', n.concurrency_key, n.overlap,
    0, 0, 0, 0, 0, '', '', %(now)s, CASE WHEN n.state = 'PENDING' THEN NULL ELSE %(now)s END
FROM json_to_recordset(%(rows)s::json) AS n(
    id uuid, workspace_id uuid, job_definition_id uuid, job_version int, schedule_id uuid, scheduled_for timestamptz,
    run_no int, replay_of uuid, trigger text, kind text, target jsonb, payload jsonb, timeout_s float8, retry jsonb,
    limits jsonb, tags json, traceparent text, state text, state_reason text, due_at timestamptz, start_deadline timestamptz,
    on_deadline text, bucket_id bigint, concurrency_key text, overlap text
)
ON CONFLICT DO NOTHING
-- The second as execution.domain.events.ROW.
RETURNING e.id,
          json_build_object('state', e.state, 'attempt', e.attempt, 'at', clock_timestamp(), 'due_at', e.due_at,
                            'workspace', e.workspace_id, 'job_definition', e.job_definition_id, 'schedule', e.schedule_id,
                            'execution', e.id, 'scheduled_for', e.scheduled_for)::text;
