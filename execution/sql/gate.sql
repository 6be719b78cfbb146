-- The last look before the send: which rows are still RUNNING under this claim, not asked to cancel, not paused;
-- the caller has marked those that may not begin for a reason of its own (a dispatch switch).
-- Those begin an attempt. The attempt's number comes from the claim, so that a repeat after a lost reply changes nothing.
WITH wanted AS (
    SELECT * FROM unnest(%(ids)s::uuid[], %(claim_seqs)s::int[], %(attempts)s::int[], %(may_begin)s::bool[])
        AS w(id, claim_seq, attempt, may_begin)
), held AS (
    SELECT e.id, wanted.attempt, wanted.may_begin,
           e.cancel_requested_at IS NOT NULL AS cancelled,
           j.paused_at IS NOT NULL AS paused
    FROM wanted
    JOIN execution_execution e ON e.id = wanted.id AND e.claim_seq = wanted.claim_seq AND e.state || '' = 'RUNNING'
    LEFT JOIN execution_jobdefinition j ON j.id = e.job_definition_id
    ORDER BY e.id
    FOR UPDATE OF e
), begun AS (
    UPDATE execution_execution e
    SET attempt = held.attempt, begun_seq = e.claim_seq, started_at = coalesce(e.started_at, greatest(e.due_at, clock_timestamp()))
    FROM held
    WHERE e.id = held.id AND held.may_begin AND NOT held.cancelled AND NOT held.paused
)
SELECT id, cancelled, paused FROM held;
