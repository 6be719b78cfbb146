-- What ended between two times, by workspace, state and step of lateness (first attempts only; else null).
SELECT workspace_id, state,
       CASE WHEN attempt = 1 AND started_at IS NOT NULL THEN
           CASE WHEN started_at <= due_at + interval '1 millisecond' THEN 0
                ELSE width_bucket(ln(extract(epoch FROM started_at - due_at)::float8 * 1000), 0, %(longest)s, %(steps)s)
           END
       END AS step,
       count(*)
FROM execution_execution
WHERE finished_at >= %(begin)s AND finished_at < %(end)s
GROUP BY 1, 2, 3;
