-- The rhythms of active recurring schedules that have occurrences to come before a time, with how many share each.
SELECT cron, timezone, every_s, next_run_at, count(*)::int AS schedules
FROM scheduling_schedule
WHERE state = 'ACTIVE' AND next_run_at <= %(until)s
  AND (%(workspace_ids)s::uuid[] IS NULL OR workspace_id = ANY(%(workspace_ids)s::uuid[]))
GROUP BY cron, timezone, every_s, next_run_at
ORDER BY schedules DESC, next_run_at
LIMIT %(most)s;
