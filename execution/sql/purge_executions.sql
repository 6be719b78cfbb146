-- Delete ended executions past their retention, oldest end first, with their resolved dead letters.
-- What an open dead letter still points at is kept until a person has decided; the word that an occurrence is to be
-- skipped, given long before, until its own time is as long over: else it would be made after all.
WITH old AS (
    SELECT e.id FROM execution_execution e
    WHERE e.finished_at < clock_timestamp() - %(retention_s)s * interval '1 second'
      AND e.state IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'SKIPPED', 'EXPIRED')
      AND (e.state <> 'SKIPPED' OR e.due_at < clock_timestamp() - %(retention_s)s * interval '1 second')
      AND NOT EXISTS (SELECT 1 FROM execution_deadletter d WHERE d.id = e.id AND d.status = 'open')
    ORDER BY e.finished_at
    LIMIT %(batch)s
    FOR UPDATE SKIP LOCKED
), letters AS (
    DELETE FROM execution_deadletter d USING old WHERE d.id = old.id
)
DELETE FROM execution_execution e USING old WHERE e.id = old.id;
