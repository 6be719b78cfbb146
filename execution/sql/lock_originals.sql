-- Lock executions that are to be replayed, and all others of their occurrences, in id order: the run numbers of an
-- occurrence are given out one replay after the other.
WITH original AS (
    SELECT id, schedule_id, scheduled_for FROM execution_execution
    WHERE id = ANY(%(ids)s) AND workspace_id = %(workspace_id)s
), wanted AS (
    SELECT id FROM original
    UNION
    SELECT e.id FROM original o
    JOIN execution_execution e ON e.schedule_id = o.schedule_id AND e.scheduled_for = o.scheduled_for
)
SELECT e.id FROM execution_execution e
JOIN wanted ON wanted.id = e.id
ORDER BY e.id
FOR NO KEY UPDATE OF e;
