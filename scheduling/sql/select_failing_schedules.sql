-- Active schedules that ask to be paused after so many failures in a row, and have just had them. Looks at what failed
-- in the last ten minutes, then at the last executions of those schedules alone: scheduled ones, ended, newest first,
-- that ended since the schedule was made or resumed.
WITH failed AS (
    SELECT DISTINCT schedule_id FROM execution_execution
    WHERE finished_at > clock_timestamp() - interval '10 minutes' AND state = 'FAILED' AND trigger = 'schedule'
      AND schedule_id IS NOT NULL
)
SELECT s.id, s.workspace_id, s.pause_after_failures
FROM failed
JOIN scheduling_schedule s ON s.id = failed.schedule_id
CROSS JOIN LATERAL (
    SELECT count(*) AS ended, count(*) FILTER (WHERE last.state = 'FAILED') AS failures FROM (
        SELECT e.state FROM execution_execution e
        WHERE e.schedule_id = s.id AND e.state IN ('SUCCEEDED', 'FAILED')
          AND e.trigger = 'schedule' AND e.finished_at > coalesce(s.resumed_at, '-infinity')
        ORDER BY e.scheduled_for DESC
        LIMIT s.pause_after_failures
    ) last
) tally
WHERE s.state = 'ACTIVE' AND s.kind <> 'once' AND s.pause_after_failures IS NOT NULL
  AND tally.ended = s.pause_after_failures AND tally.failures = s.pause_after_failures
ORDER BY s.id
LIMIT %(most)s;
