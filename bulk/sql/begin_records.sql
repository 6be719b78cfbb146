-- The last look before the send: which rows are still RUNNING under this claim, their job neither cancelled nor paused.
-- Those that may begin an attempt. Its number comes from the claim, so that a repeat after a lost reply changes nothing.
WITH wanted AS (
    SELECT * FROM unnest(%(ids)s::uuid[], %(claim_seqs)s::int[], %(attempts)s::int[], %(may_begin)s::bool[])
        AS w(id, claim_seq, attempt, may_begin)
), held AS (
    SELECT r.id, wanted.attempt, wanted.may_begin,
           j.cancel_requested_at IS NOT NULL AS cancelled,
           (j.state <> 'RUNNING' OR d.paused_at IS NOT NULL) AS paused
    FROM wanted
    JOIN bulk_bulkrecord r ON r.id = wanted.id AND r.claim_seq = wanted.claim_seq AND r.state = 'RUNNING'
    JOIN bulk_bulkjob j ON j.id = r.bulk_job_id
    JOIN execution_jobdefinition d ON d.id = j.job_definition_id
    ORDER BY r.id
    FOR UPDATE OF r
), begun AS (
    UPDATE bulk_bulkrecord r
    SET attempt = held.attempt, begun_seq = r.claim_seq, started_at = coalesce(r.started_at, clock_timestamp())
    FROM held
    WHERE r.id = held.id AND held.may_begin AND NOT held.cancelled AND NOT held.paused
)
SELECT id, cancelled, paused FROM held;
