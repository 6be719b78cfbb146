-- Jobs by how often they failed for good in the last seconds, among the newest dead letters.
WITH letter AS MATERIALIZED (
    SELECT workspace_id, job_definition_id, status, reason, last_error, created_at
    FROM execution_deadletter
    WHERE created_at >= clock_timestamp() - %(window_s)s * interval '1 second'
      AND (%(workspace_ids)s::uuid[] IS NULL OR workspace_id = ANY(%(workspace_ids)s::uuid[]))
    ORDER BY created_at DESC
    LIMIT %(rows)s
), grouped AS (
    SELECT workspace_id, job_definition_id, count(*) AS failed, count(*) FILTER (WHERE status = 'open') AS open,
           mode() WITHIN GROUP (ORDER BY last_error) AS error, mode() WITHIN GROUP (ORDER BY reason) AS reason,
           max(created_at) AS last_at
    FROM letter GROUP BY 1, 2
)
SELECT g.workspace_id, w.name AS workspace, g.job_definition_id, j.name AS job, g.failed, g.open, g.error, g.reason,
       g.last_at
FROM grouped g
JOIN tenancy_workspace w ON w.id = g.workspace_id
LEFT JOIN execution_jobdefinition j ON j.id = g.job_definition_id
ORDER BY g.failed DESC, g.last_at DESC
LIMIT %(most)s;
