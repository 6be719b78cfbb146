-- Which nominal times of these schedules, from a moment of each on, have a row already.
SELECT e.schedule_id, e.scheduled_for
FROM unnest(%(ids)s::uuid[], %(firsts)s::timestamptz[]) AS s(id, first)
JOIN execution_execution e ON e.schedule_id = s.id AND e.scheduled_for >= s.first AND e.run_no = 0;
