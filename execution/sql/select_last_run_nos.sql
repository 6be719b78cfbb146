-- The highest run number of each occurrence that these executions belong to. Run after lock_originals, so that it sees
-- what the lock's last holder committed.
WITH occurrence AS (
    SELECT DISTINCT schedule_id, scheduled_for FROM execution_execution
    WHERE id = ANY(%(ids)s) AND schedule_id IS NOT NULL
)
SELECT o.schedule_id, o.scheduled_for, max(e.run_no)
FROM occurrence o
JOIN execution_execution e ON e.schedule_id = o.schedule_id AND e.scheduled_for = o.scheduled_for
GROUP BY o.schedule_id, o.scheduled_for;
