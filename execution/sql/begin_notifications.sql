-- The last look before the send: which notifications are still RUNNING under this claim. Those that may begin an attempt.
-- Its number comes from the claim, so that a repeat after a lost reply changes nothing.
WITH wanted AS (
    SELECT * FROM unnest(%(ids)s::uuid[], %(claim_seqs)s::int[], %(attempts)s::int[], %(may_begin)s::bool[])
        AS w(id, claim_seq, attempt, may_begin)
), held AS (
    SELECT n.id, wanted.attempt, wanted.may_begin
    FROM wanted
    JOIN execution_notification n ON n.id = wanted.id AND n.claim_seq = wanted.claim_seq AND n.state || '' = 'RUNNING'
    ORDER BY n.id
    FOR UPDATE OF n
), begun AS (
    UPDATE execution_notification n
    SET attempt = held.attempt, begun_seq = n.claim_seq, started_at = coalesce(n.started_at, clock_timestamp())
    FROM held
    WHERE n.id = held.id AND held.may_begin
)
SELECT id FROM held;
