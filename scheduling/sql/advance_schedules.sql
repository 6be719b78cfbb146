-- Where schedules stand after their occurrences were made; in the transaction that made them.
UPDATE scheduling_schedule s
SET next_run_at = a.next_run_at, run_count = s.run_count + a.ran, missed_count = s.missed_count + a.missed,
    last_misfire = coalesce(a.report::jsonb, s.last_misfire)
FROM unnest(%(ids)s::uuid[], %(next_run_ats)s::timestamptz[], %(rans)s::int[], %(misseds)s::bigint[],
            %(reports)s::text[]) AS a(id, next_run_at, ran, missed, report)
WHERE s.id = a.id;
