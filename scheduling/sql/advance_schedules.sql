-- Where schedules stand after their occurrences were made; in the transaction that made them.
UPDATE scheduling_schedule s
SET next_run_at = a.next_run_at, run_count = s.run_count + a.ran, missed_count = s.missed_count + a.missed,
    last_misfire = coalesce(a.report, s.last_misfire)
FROM json_to_recordset(%(rows)s::json) AS a(id uuid, next_run_at timestamptz, ran int, missed bigint, report jsonb)
WHERE s.id = a.id;
