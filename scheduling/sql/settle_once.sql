-- ACTIVE → COMPLETED for once-schedules whose execution has ended. Looks at the oldest and the newest that are due, so
-- that neither a crowd of parked ones nor a stream of new ones hides the others for long.
WITH due AS (
    (SELECT id, execution_id FROM scheduling_schedule
     WHERE state = 'ACTIVE' AND kind = 'once' AND run_at < clock_timestamp() ORDER BY run_at LIMIT %(most)s)
    UNION
    (SELECT id, execution_id FROM scheduling_schedule
     WHERE state = 'ACTIVE' AND kind = 'once' AND run_at < clock_timestamp() ORDER BY run_at DESC LIMIT %(most)s)
), ended AS (
    SELECT s.id FROM scheduling_schedule s
    JOIN due ON due.id = s.id
    JOIN execution_execution e ON e.id = due.execution_id
     AND e.state IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'SKIPPED', 'EXPIRED')
    WHERE s.state = 'ACTIVE'
    ORDER BY s.id
    FOR UPDATE OF s SKIP LOCKED
)
UPDATE scheduling_schedule s
SET state = 'COMPLETED', version = s.version + 1, updated_at = clock_timestamp()
FROM ended WHERE s.id = ended.id
RETURNING s.id, s.workspace_id, s.job_definition_id, s.updated_at;
