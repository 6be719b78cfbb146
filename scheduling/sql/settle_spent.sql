-- ACTIVE → COMPLETED for recurring schedules without a next occurrence, once none of their executions is under way.
WITH spent AS (
    SELECT s.id FROM scheduling_schedule s
    WHERE s.state = 'ACTIVE' AND s.next_run_at IS NULL AND s.kind <> 'once'
      AND NOT EXISTS (
          SELECT 1 FROM execution_execution e
          WHERE e.schedule_id = s.id AND e.state IN ('PENDING', 'QUEUED', 'RUNNING', 'RETRYING')
      )
    ORDER BY s.id
    LIMIT %(most)s
    FOR NO KEY UPDATE OF s SKIP LOCKED
)
UPDATE scheduling_schedule s
SET state = 'COMPLETED', version = s.version + 1, updated_at = clock_timestamp()
FROM spent WHERE s.id = spent.id
RETURNING s.id, s.workspace_id, s.job_definition_id, s.updated_at;
