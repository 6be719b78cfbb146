-- Delete once-schedules whose time is over and whose execution is no longer there.
DELETE FROM scheduling_schedule WHERE id IN (
    SELECT s.id FROM scheduling_schedule s
    WHERE s.kind = 'once' AND s.run_at < clock_timestamp() - interval '1 day'
      AND NOT EXISTS (SELECT 1 FROM execution_execution e WHERE e.id = s.execution_id)
    ORDER BY s.run_at
    LIMIT %(batch)s
    FOR UPDATE SKIP LOCKED
);
