-- What is off, and how much waits for it.
SELECT s.id, s.scope, s.value, w.name, s.at, s.set_by AS by, s.reason, held.waiting
FROM execution_dispatchswitch s
LEFT JOIN tenancy_workspace w ON s.scope = 'workspace' AND w.id::text = s.value
CROSS JOIN LATERAL (
    SELECT count(*) AS waiting FROM (
        SELECT 1 FROM execution_execution
        WHERE held_by = s.id AND state IN ('PENDING', 'RETRYING')
          AND (%(workspace_ids)s::uuid[] IS NULL OR workspace_id = ANY(%(workspace_ids)s::uuid[]))
        LIMIT 100000
    ) counted
) held
WHERE %(workspace_ids)s::uuid[] IS NULL OR s.scope <> 'workspace' OR w.id = ANY(%(workspace_ids)s::uuid[])
ORDER BY s.id;
