-- Lock what is due for another attempt, longest due first, where a switch may hold some of it: queue_retrying and
-- hold_retrying divide it between them.
SELECT id, workspace_id, target FROM execution_execution
WHERE state = 'RETRYING' AND held_by IS NULL AND due_at <= clock_timestamp() + %(horizon_s)s * interval '1 second'
ORDER BY due_at
LIMIT %(most)s
FOR UPDATE SKIP LOCKED;
