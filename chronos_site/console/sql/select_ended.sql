-- Executions by their end, within so many seconds.
SELECT e.id, w.name AS workspace, j.name AS job, e.schedule_id, e.state, e.state_reason, e.attempt, e.last_status,
       e.last_error, e.last_duration_ms, e.scheduled_for, e.finished_at
FROM (
    SELECT * FROM execution_execution
    WHERE finished_at >= clock_timestamp() - %(since_s)s * interval '1 second'
      AND (%(workspace_ids)s::uuid[] IS NULL OR workspace_id = ANY(%(workspace_ids)s::uuid[]))
      AND (%(job_ids)s::uuid[] IS NULL OR job_definition_id = ANY(%(job_ids)s::uuid[]))
      AND (%(states)s::text[] IS NULL OR state = ANY(%(states)s::text[]))
    ORDER BY finished_at /*order*/
    LIMIT %(most)s
) e
JOIN tenancy_workspace w ON w.id = e.workspace_id
LEFT JOIN execution_jobdefinition j ON j.id = e.job_definition_id
ORDER BY e.finished_at /*order*/, e.id;
