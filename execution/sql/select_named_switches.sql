-- The switches that waiting rows name, each once. Hops along the index from switch to switch.
WITH RECURSIVE named AS (
    (SELECT held_by FROM execution_execution
     WHERE held_by IS NOT NULL AND state IN ('PENDING', 'RETRYING')
     ORDER BY held_by LIMIT 1)
    UNION ALL
    SELECT (SELECT e.held_by FROM execution_execution e
            WHERE e.held_by > named.held_by AND e.state IN ('PENDING', 'RETRYING')
            ORDER BY e.held_by LIMIT 1)
    FROM named WHERE named.held_by IS NOT NULL
)
SELECT held_by FROM named WHERE held_by IS NOT NULL;
