-- What ended in the last seconds, by job or by workspace, among the newest rows.
WITH ended AS MATERIALIZED (
    SELECT workspace_id, CASE WHEN %(by_job)s THEN job_definition_id END AS job_definition_id, state, finished_at,
           last_duration_ms, last_error,
           CASE WHEN attempt = 1 THEN extract(epoch FROM started_at - due_at)::float8 * 1000 END AS late_ms
    FROM execution_execution
    WHERE finished_at >= clock_timestamp() - %(window_s)s * interval '1 second'
      AND (%(workspace_ids)s::uuid[] IS NULL OR workspace_id = ANY(%(workspace_ids)s::uuid[]))
    ORDER BY finished_at DESC
    LIMIT %(rows)s
), grouped AS (
    SELECT workspace_id, job_definition_id,
           count(*) FILTER (WHERE state = 'SUCCEEDED') AS delivered, count(*) FILTER (WHERE state = 'FAILED') AS failed,
           percentile_disc(0.5) WITHIN GROUP (ORDER BY late_ms) AS late_p50_ms,
           percentile_disc(0.99) WITHIN GROUP (ORDER BY late_ms) AS late_p99_ms,
           percentile_disc(0.5) WITHIN GROUP (ORDER BY last_duration_ms) AS duration_p50_ms,
           mode() WITHIN GROUP (ORDER BY last_error) FILTER (WHERE state = 'FAILED') AS last_error
    FROM ended GROUP BY 1, 2
)
SELECT g.workspace_id, w.name AS workspace, g.job_definition_id, j.name AS job, g.delivered, g.failed,
       round(g.late_p50_ms::numeric, 1)::float8 AS late_p50_ms, round(g.late_p99_ms::numeric, 1)::float8 AS late_p99_ms,
       round(g.duration_p50_ms::numeric, 1)::float8 AS duration_p50_ms, nullif(g.last_error, '') AS last_error,
       (SELECT count(*) FROM ended) AS looked_at, (SELECT min(finished_at) FROM ended) AS since
FROM grouped g
JOIN tenancy_workspace w ON w.id = g.workspace_id
LEFT JOIN execution_jobdefinition j ON j.id = g.job_definition_id
ORDER BY CASE %(order)s WHEN 1 THEN g.failed WHEN 2 THEN coalesce(g.late_p99_ms, 0) ELSE g.delivered END DESC,
         g.delivered + g.failed DESC, g.workspace_id, g.job_definition_id
LIMIT %(most)s;
